package offload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	prom "github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/collect"
	"github.com/joulevirt/joulevirt/controllers/watch"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/guards"
	"github.com/joulevirt/joulevirt/internal/observe/slots"
	"github.com/joulevirt/joulevirt/internal/plan"
	"github.com/joulevirt/joulevirt/internal/planner/offload/guard"
	"github.com/joulevirt/joulevirt/internal/routing"
)

const (
	// askTimeout is how long a gateway may take to show its metrics, and askAtOnce how many are asked at once.
	askTimeout = 2 * time.Second
	askAtOnce  = 16
	// largestPage of metrics that is read.
	largestPage = 256 << 10
)

// Guard observes gateways, and withdraws those that harm their VMs' clients.
type Guard struct {
	// Reader has HybridWorkloads, and Gateways their pods.
	Reader, Gateways client.Reader
	Store            *guards.Store
	// Workloads get what gateways served.
	Workloads *Workloads
	// Dial connects to gateways. Nil: the network.
	Dial     func(ctx context.Context, network, address string) (net.Conn, error)
	Metrics  *collect.Metrics
	Recorder events.EventRecorder
	Clock    clock.PassiveClock

	// withdrew are HybridWorkloads of which a gateway was withdrawn.
	withdrew chan event.GenericEvent
	client   *http.Client
	// watched are the gateways of VMs, by the UID of the launcher pod.
	watched map[types.UID]*watched
}

// NewGuard returns a guard that has observed nothing.
func NewGuard(g Guard) *Guard {
	dial := g.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	g.withdrew, g.watched = make(chan event.GenericEvent), map[types.UID]*watched{}
	g.client = &http.Client{
		Timeout: askTimeout, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &g
}

// withdrawals returns what is withdrawn of a HybridWorkload, or remembered.
func (g *Guard) withdrawals(of *v1alpha1.HybridWorkload) []model.Withdrawal {
	return g.Store.OfHybridWorkload(client.ObjectKeyFromObject(of).String(), plan.DecodeWithdrawals(of.Status.Withdrawn))
}

// watched is what is known of the gateways that a VM had.
type watched struct {
	pods  map[types.UID]*podSeen
	spans []timedSpan
	// restarted and unready are when a gateway was restarted or ended, and ceased to be ready.
	restarted, unready []time.Time
}

// podSeen is what a gateway's pod said last.
type podSeen struct {
	ready    metav1.Time // zero: it was not
	restarts int32
	failed   bool
	counters *counters
}

type timedSpan struct {
	guard.Span
	at time.Time
}

// counters of a gateway since its start.
type counters struct{ hits, answers, errors, firstByte, delay, sent, received float64 }

// Look observes all gateways.
func (g *Guard) Look(ctx context.Context) error {
	var list v1alpha1.HybridWorkloadList
	if err := g.Reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list HybridWorkloads: %w", err)
	}
	if len(list.Items) == 0 { // nothing is to be cached
		clear(g.watched)
		return nil
	}
	var pods corev1.PodList
	if err := g.Gateways.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list gateways: %w", err)
	}
	all := map[types.UID]*v1alpha1.HybridWorkload{}
	for i := range list.Items {
		all[list.Items[i].UID] = &list.Items[i]
	}
	var gateways []*gateway
	var owners []*v1alpha1.HybridWorkload
	for i := range pods.Items {
		pod := &gateway{Pod: &pods.Items[i]}
		owner := metav1.GetControllerOfNoCopy(pod)
		if owner == nil || all[owner.UID] == nil || pod.isEnding() {
			continue
		}
		gateways, owners = append(gateways, pod), append(owners, all[owner.UID])
	}
	pages, err := g.ask(ctx, gateways)
	now, there := g.Clock.Now(), map[types.UID]bool{}
	served := map[types.UID]slots.Gateway{}
	for i, pod := range gateways {
		if page := pages[i]; page != nil {
			served[pod.UID] = slots.Gateway{At: now, Sent: page.sent, Received: page.received}
		}
		if g.isWithdrawn(owners[i], pod.of(), now) {
			continue
		}
		w := g.watched[pod.of()]
		if w == nil {
			w = &watched{pods: map[types.UID]*podSeen{}}
			g.watched[pod.of()] = w
		}
		there[pod.of()] = true
		w.observe(pod, pages[i], now)
		g.decide(ctx, owners[i], pod.of(), w)
	}
	g.Workloads.setServed(served)
	for of, w := range g.watched {
		w.forget(now)
		if !there[of] && len(w.restarted)+len(w.unready) == 0 {
			delete(g.watched, of)
		}
	}
	return err
}

// isWithdrawn returns whether the gateway of a VM goes, or is gone.
func (g *Guard) isWithdrawn(owner *v1alpha1.HybridWorkload, of types.UID, now time.Time) bool {
	return slices.ContainsFunc(g.withdrawals(owner), func(w model.Withdrawal) bool { return w.PodUID == string(of) && w.Lasts(now) })
}

// decide withdraws the gateway of a VM if it harms.
func (g *Guard) decide(ctx context.Context, owner *v1alpha1.HybridWorkload, of types.UID, w *watched) {
	observed := guard.Observed{Failures: max(len(w.restarted), len(w.unready)), Target: ptr.Deref(owner.Spec.TargetResponseTime, metav1.Duration{}).Duration}
	for _, s := range w.spans {
		observed.Spans = append(observed.Spans, s.Span)
	}
	harm := guard.Decide(observed)
	if harm == nil {
		return
	}
	withdrawal, begun := g.Store.WithdrawOffload(client.ObjectKeyFromObject(owner).String(), string(of), harm.Sign, harm.Message)
	if !begun {
		return
	}
	delete(g.watched, of) // the next gateway begins anew
	g.Metrics.GuardBreaches.WithLabelValues(string(harm.Sign), string(v1alpha1.LeverOffload)).Inc()
	g.Recorder.Eventf(owner, nil, corev1.EventTypeWarning, v1alpha1.ReasonGuardWithdrawn, "Withdraw", "lever %s: %s", v1alpha1.LeverOffload, withdrawal.Words())
	watch.Send(ctx, g.withdrew, owner)
}

// observe records what a gateway's pod and metrics say. counters are nil when it was not asked, or did not say.
func (w *watched) observe(pod *gateway, now *counters, at time.Time) {
	ready, restarts := metav1.Time{}, int32(0)
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			ready = c.LastTransitionTime
		}
	}
	for i := range pod.Status.ContainerStatuses {
		restarts += pod.Status.ContainerStatuses[i].RestartCount
	}
	seen := w.pods[pod.UID]
	if seen == nil { // what was before is another manager's
		seen = &podSeen{ready: ready, restarts: restarts}
		w.pods[pod.UID] = seen
	}
	if !seen.ready.IsZero() && !ready.Equal(&seen.ready) {
		w.unready = append(w.unready, at)
	}
	if tlsProblem(pod.Pod) != "" { // which the owner has to correct: clients did not reach it
		seen.restarts = restarts
	}
	for ; seen.restarts < restarts; seen.restarts++ {
		w.restarted = append(w.restarted, at)
	}
	if pod.hasFailed() && !seen.failed {
		w.restarted = append(w.restarted, at)
	}
	seen.ready, seen.failed = ready, pod.hasFailed()
	if before := seen.counters; before != nil && now != nil && !now.restartedSince(before) {
		w.spans = append(w.spans, timedSpan{now.since(before), at})
	}
	if now != nil {
		seen.counters = now
	}
}

// forget what is too old.
func (w *watched) forget(now time.Time) {
	old := func(at time.Time) bool { return now.Sub(at) > guard.FailureWindow }
	w.restarted, w.unready = slices.DeleteFunc(w.restarted, old), slices.DeleteFunc(w.unready, old)
	w.spans = slices.DeleteFunc(w.spans, func(s timedSpan) bool { return now.Sub(s.at) > guard.Window })
}

func (c *counters) all() []float64 {
	return []float64{c.hits, c.answers, c.errors, c.firstByte, c.delay, c.sent, c.received}
}

func (c *counters) restartedSince(before *counters) bool {
	was := before.all()
	for i, now := range c.all() {
		if now < was[i] {
			return true
		}
	}
	return false
}

func (c *counters) since(before *counters) guard.Span {
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	return guard.Span{
		Hits: c.hits - before.hits, Answers: c.answers - before.answers, Errors: c.errors - before.errors,
		FirstByte: seconds(c.firstByte - before.firstByte), Delay: seconds(c.delay - before.delay),
	}
}

// ask asks those of the gateways that are ready, and returns answers in the order of the gateways. One
// that does not say leaves nil.
func (g *Guard) ask(ctx context.Context, gateways []*gateway) ([]*counters, error) {
	pages, failed := make([]*counters, len(gateways)), make([]error, len(gateways))
	var group errgroup.Group
	group.SetLimit(askAtOnce)
	for i, pod := range gateways {
		if !routing.IsReady(pod.Pod) || pod.Status.PodIP == "" {
			continue
		}
		group.Go(func() error {
			if pages[i], failed[i] = g.askOne(ctx, pod.Pod); failed[i] != nil {
				failed[i] = fmt.Errorf("ask gateway %s/%s: %w", pod.Namespace, pod.Name, failed[i])
			}
			return nil
		})
	}
	_ = group.Wait()
	return pages, errors.Join(failed...)
}

func (g *Guard) askOne(ctx context.Context, pod *corev1.Pod) (*counters, error) {
	port := probePortOf(&corev1.PodTemplate{Template: corev1.PodTemplateSpec{Spec: pod.Spec}})
	url := "http://" + net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(port))) + "/metrics"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := g.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %s", response.Status)
	}
	return readCounters(io.LimitReader(response.Body, largestPage))
}

// readCounters reads a gateway's page of metrics.
func readCounters(page io.Reader) (*counters, error) {
	parser := expfmt.NewTextParser(prom.UTF8Validation)
	families, err := parser.TextToMetricFamilies(page)
	if err != nil {
		return nil, fmt.Errorf("read its metrics: %w", err)
	}
	var c counters
	for name, into := range map[string]*float64{
		"joulevirt_gateway_requests_total": &c.hits, "joulevirt_gateway_vm_answers_total": &c.answers, "joulevirt_gateway_errors_total": &c.errors,
		"joulevirt_gateway_vm_first_byte_seconds_total": &c.firstByte, "joulevirt_gateway_delay_seconds_total": &c.delay,
		"joulevirt_gateway_sent_bytes_total": &c.sent, "joulevirt_gateway_vm_bytes_total": &c.received,
	} {
		for _, m := range families[name].GetMetric() {
			value := m.GetCounter().GetValue()
			if math.IsNaN(value) || math.IsInf(value, 0) || value < 0 {
				return nil, fmt.Errorf("%s is %v", name, value)
			}
			isMiss := slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == "miss" })
			if into != &c.hits || !isMiss {
				*into += value
			}
		}
	}
	return &c, nil
}
