//go:build e2e

package traffic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/env/node"
	"github.com/joulevirt/joulevirt/test/internal/fetch"
)

const (
	// readers ask at once, and askAgain is how soon one does that got no answer.
	readers  = 8
	askAgain = 200 * time.Millisecond
	// gone is after what time clients of a VM that migrates try again: who serves them may be gone.
	gone = 10 * time.Second
	// fileSize is that of the guest's files.
	fileSize = 4 << 20
)

// reading is clients that ask until they are answered.
type reading struct {
	mu sync.Mutex
	// answered counts the answers to each client.
	answered [readers]int
	counts
	// files is how many were asked for, and each how often one is. 0: the VM's name is asked for,
	// which is never stored.
	files, each int
	// timeout of one try.
	timeout time.Duration
}

// counts are what all clients had since the last look.
type counts struct {
	answers int
	// broken requests were not answered at the first try, and again is how often one was made again.
	broken, again int
	// longest time until one was answered.
	longest time.Duration
	lost    []error
}

// read starts clients that ask a Service, each request with a connection of its own.
func (s *story) read(url string) *reading {
	r := &reading{timeout: answerTimeout}
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	var running sync.WaitGroup
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		return suite.network.Dial(ctx, network, address)
	}}}
	for client := range readers {
		running.Go(func() {
			ticker := time.NewTicker(askAgain)
			defer ticker.Stop()
			for ctx.Err() == nil {
				path, timeout := r.next()
				r.one(ctx, client, func() error {
					try, end := context.WithTimeout(ctx, timeout)
					defer end()
					_, err := fetch.Body(try, web, url+path)
					return err
				}, ticker)
				<-ticker.C
			}
		})
	}
	s.Cleanup(func() { cancel(); running.Wait() })
	return r
}

// next returns the path of the next request, and the time that a try of it has.
func (r *reading) next() (path string, timeout time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.each == 0 {
		return "", r.timeout
	}
	r.files++
	return fmt.Sprintf("file/%d", r.files/r.each), r.timeout
}

// ask has clients ask for files from now on, each so often. 0: for the VM's name. Fewer times than
// before: for new files.
func (r *reading) ask(each int, timeout time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.each, r.timeout = each, timeout
}

// one makes a request of a client until it is answered.
func (r *reading) one(ctx context.Context, client int, try func() error, ticker *time.Ticker) {
	begun := time.Now()
	for tries := 1; ; tries++ {
		err := try()
		if ctx.Err() != nil {
			return
		}
		took := time.Since(begun)
		r.mu.Lock()
		switch {
		case err == nil:
			r.answered[client]++
			r.answers++
			r.longest = max(r.longest, took)
		case took > soon:
			r.lost = append(r.lost, err)
		case tries == 1:
			r.broken++
			fallthrough
		default:
			r.again++
		}
		r.mu.Unlock()
		if err == nil || took > soon {
			return
		}
		<-ticker.C
	}
}

// since returns what was counted, and begins anew.
func (r *reading) since() counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.counts
	r.counts = counts{}
	return all
}

// TestGatewayAnswersForVM: a gateway takes the place of a VM in its Service while clients ask, is
// killed, goes with the permission, follows the VM to another node, has more to store than it may,
// and is made anew when the VM restarts.
//
//e2e:alone it compares what two migrations lose
func TestGatewayAnswersForVM(t *testing.T) {
	if err := suite.ApplyManifests(t.Context(), "../../../config/offload"); err != nil {
		t.Fatal(err)
	}
	s := &story{T: t}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "offload-"}}
	s.create(namespace)
	s.namespace = namespace.Name
	policy := &v1alpha1.EnergyPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "offload"},
		Spec: v1alpha1.EnergyPolicySpec{
			Mode: v1alpha1.ModeEnforce, Levers: []v1alpha1.Lever{v1alpha1.LeverOffload}, Priority: 1,
			Energy:       v1alpha1.EnergySettings{AllowModelled: true},
			Verification: v1alpha1.Verification{Trials: v1alpha1.TrialsDisabled, HoldBackPercent: ptr.To[int32](0)},
		},
	}
	s.startVMs(1)
	reading := s.read(s.service("web"))
	phase := func(what string, most int) counts {
		t.Helper()
		c := reading.since()
		t.Logf("%s: %d answers, %d requests not at once, asked again %d times, the longest answered after %v", what, c.answers, c.broken, c.again, c.longest)
		if len(c.lost) > 0 || most >= 0 && c.again > most {
			t.Errorf("%s: %d requests were asked again, at most %d should; lost: %v", what, c.again, most, errors.Join(c.lost...))
		}
		return c
	}
	hybrid := &v1alpha1.HybridWorkload{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "web"},
		Spec: v1alpha1.HybridWorkloadSpec{
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, ServiceName: "web", Port: port,
			Memory:             v1alpha1.GatewayMemory{Min: resource.MustParse("16Mi"), Max: resource.MustParse("64Mi")},
			TargetResponseTime: &metav1.Duration{Duration: 100 * time.Millisecond},
		},
	}
	s.create(policy)
	s.create(hybrid)
	first := s.gatewayServes(hybrid, nil)
	s.haveAnswers(reading)
	phase("a gateway is made", 0)
	s.passesGateway(first)

	pid, err := suite.Nodes()[0].PodProcess(first.UID, "/joulevirt-gateway")
	if err != nil {
		t.Fatal(err)
	}
	s.signal(pid, syscall.SIGKILL)
	s.eventually("the kubelet has restarted the gateway", func(ctx context.Context) error {
		err := suite.Client().Get(ctx, client.ObjectKeyFromObject(first), first)
		if err == nil && first.Status.ContainerStatuses[0].RestartCount == 0 {
			err = errors.New("it has not")
		}
		return err
	})
	s.gatewayServes(hybrid, nil)
	s.haveAnswers(reading)
	phase("the gateway was killed", -1)
	s.passesGateway(first)

	s.change(policy, `{"spec":{"mode":"Recommend"}}`)
	s.eventually("the gateway is gone", func(ctx context.Context) error {
		var pods corev1.PodList
		err := suite.Client().List(ctx, &pods, client.InNamespace(s.namespace), client.HasLabels{v1alpha1.LabelGateway})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("pod %s is there", pods.Items[0].Name)
		}
		return err
	})
	s.haveAnswers(reading)
	phase("the permission was withdrawn", 0)
	reading.ask(readers, gone)
	s.haveAnswers(reading)
	reading.since()
	s.migrateTo(suite.Nodes()[1])
	s.haveAnswers(reading)
	without := phase("the VM migrated", -1)

	reading.ask(0, answerTimeout)
	s.haveAnswers(reading)
	reading.since()
	s.change(policy, `{"spec":{"mode":"Enforce"}}`)
	second := s.gatewayServes(hybrid, first)
	s.haveAnswers(reading)
	phase("it is permitted again", 0)
	reading.ask(readers, gone)
	s.haveAnswers(reading)
	reading.since()
	s.migrateTo(suite.Nodes()[0])
	third := s.gatewayServes(hybrid, second)
	s.haveAnswers(reading)
	with := phase("the VM migrated, and its gateway followed", -1)
	// Each client waits for one when the VM leaves.
	if most := max(readers, without.broken); with.broken > most || third.Spec.NodeName != suite.Nodes()[0].Name {
		t.Errorf("%d requests were not answered at once, want at most %d; the gateway is on node %s", with.broken, most, third.Spec.NodeName)
	}

	reading.ask(1, answerTimeout)
	s.haveAnswers(reading)
	reading.since()
	s.eventually("clients had three times what the gateway may store", func(context.Context) error {
		reading.mu.Lock()
		defer reading.mu.Unlock()
		if reading.answers < 3*int(hybrid.Spec.Memory.Max.Value())/fileSize {
			return fmt.Errorf("they had %d files", reading.answers)
		}
		return nil
	})
	reading.ask(0, answerTimeout)
	s.haveAnswers(reading)
	phase("the store was full", 0)
	s.withinStore(third, hybrid)

	vmi := &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.names[0]}}
	if err := suite.Client().Delete(t.Context(), vmi); err != nil {
		t.Fatal(err)
	}
	fourth := s.gatewayServes(hybrid, third)
	s.haveAnswers(reading)
	phase("the VM restarted", -1)
	s.passesGateway(fourth)
}

func (s *story) change(o client.Object, merge string) {
	s.Helper()
	if err := suite.Client().Patch(s.Context(), o, client.RawPatch(types.MergePatchType, []byte(merge))); err != nil {
		s.Fatal(err)
	}
}

// gatewayServes waits until another gateway than before serves, and returns its pod.
func (s *story) gatewayServes(hybrid *v1alpha1.HybridWorkload, before *corev1.Pod) *corev1.Pod {
	s.Helper()
	pod := &corev1.Pod{}
	s.eventually("a gateway serves", func(ctx context.Context) error {
		if err := suite.Client().Get(ctx, client.ObjectKeyFromObject(hybrid), hybrid); err != nil {
			return err
		}
		if len(hybrid.Status.Gateways) != 1 || !hybrid.Status.Gateways[0].Ready {
			return fmt.Errorf("status %+v", hybrid.Status)
		}
		err := suite.Client().Get(ctx, types.NamespacedName{Namespace: s.namespace, Name: hybrid.Status.Gateways[0].Pod}, pod)
		if err == nil && before != nil && pod.UID == before.UID {
			err = errors.New("it is that of before")
		}
		return err
	})
	return pod
}

// migrateTo migrates the only VM.
func (s *story) migrateTo(n *node.Node) {
	s.Helper()
	vmi, err := suite.Migrate(s.Context(), s.key(s.names[0]))
	if err == nil && vmi.Status.NodeName != n.Name {
		err = fmt.Errorf("it is on node %s, want %s", vmi.Status.NodeName, n.Name)
	}
	if err != nil {
		s.Fatal(err)
	}
}

// haveAnswers waits until each client had another answer to what it asked since.
func (s *story) haveAnswers(r *reading) {
	s.Helper()
	count := func() [readers]int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.answered
	}
	before := count()
	s.eventually("clients are answered", func(context.Context) error {
		for client, now := range count() {
			if now < before[client]+2 {
				return fmt.Errorf("client %d had %d answers", client, now-before[client])
			}
		}
		return nil
	})
}

// passesGateway waits until a gateway counts another request.
func (s *story) passesGateway(pod *corev1.Pod) {
	s.Helper()
	var before string
	s.eventually("requests pass the gateway", func(ctx context.Context) error {
		now, err := metric(ctx, pod, `joulevirt_gateway_requests_total{result="miss"}`)
		if err == nil && (before == "" || now == before) {
			before, err = now, fmt.Errorf("it counts %s", now)
		}
		return err
	})
}

// withinStore wants a gateway to have stored, no more than it may, to have failed nobody and not to
// have been restarted.
func (s *story) withinStore(pod *corev1.Pod, hybrid *v1alpha1.HybridWorkload) {
	s.Helper()
	used, err := metric(s.Context(), pod, "joulevirt_gateway_store_used_bytes")
	failed, failedErr := metric(s.Context(), pod, "joulevirt_gateway_errors_total")
	bytes, parseErr := strconv.ParseFloat(used, 64)
	getErr := suite.Client().Get(s.Context(), client.ObjectKeyFromObject(pod), pod)
	if err := errors.Join(err, failedErr, parseErr, getErr); err != nil {
		s.Fatal(err)
	}
	if most := hybrid.Spec.Memory.Max.AsApproximateFloat64(); bytes < fileSize || bytes > most || failed != "0" || pod.Status.ContainerStatuses[0].RestartCount > 0 {
		s.Errorf("the gateway uses %s bytes of its store, want at most %g, made %s errors, and its container is %+v", used, most, failed, pod.Status.ContainerStatuses[0])
	}
}

// metric returns the value of a gateway's series.
func metric(ctx context.Context, pod *corev1.Pod, series string) (string, error) {
	text, err := fetch.Body(ctx, http.DefaultClient, "http://"+pod.Status.PodIP+":9465/metrics")
	_, value, found := strings.Cut(text, "\n"+series+" ")
	if err == nil && !found {
		err = fmt.Errorf("it has no %s", series)
	}
	value, _, _ = strings.Cut(value, "\n")
	return value, err
}
