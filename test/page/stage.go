package page

import (
	"context"
	"fmt"
	"math"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/page"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
)

// Stage serves the page from a cache of an API server, as the manager does.
type Stage struct {
	// Address of the page, by TLS.
	Address string
	// Client writes what the page shows.
	Client client.Client
	// Clock of the page.
	Clock *clocktesting.FakeClock

	server *httptest.Server
	live   *live
	ready  atomic.Pointer[error]
	day    *day
	end    func()
}

// Start begins to serve by the API server of a client configuration, and remembers a day of
// figures. End it when done.
func Start(ctx context.Context, config *rest.Config) (*Stage, error) {
	scheme, err := controllers.NewScheme()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	writer, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	objects, err := cache.New(config, cache.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	// The day ends now, so that the page's times are those of today.
	s := &Stage{Client: writer, Clock: clocktesting.NewFakeClock(time.Now().Add(-daySpan)), live: &live{}}
	s.live.clock = s.Clock
	s.day = &day{Reader: objects, clock: s.Clock, end: time.Now()}
	p, err := page.New(page.Options{
		Reader: s.day, Reviews: clients, Live: s.live, Ready: s.isReady, Leads: func() bool { return true }, Led: s.day.led,
		Version: "v1.0.0", Clock: s.Clock, Log: logr.Discard(),
	})
	if err != nil {
		cancel()
		return nil, err
	}
	var tasks sync.WaitGroup
	tasks.Go(func() { _ = objects.Start(ctx) }) // fails only when it cannot be ended
	tasks.Go(func() { p.Remember(ctx) })
	s.server = httptest.NewTLSServer(p.Handler())
	s.Address = s.server.URL
	s.end = func() { s.server.Close(); cancel(); tasks.Wait() }
	return s, nil
}

// End ends serving.
func (s *Stage) End() { s.end() }

// Fail makes the page say that it is not ready, for a cause. Nil: it is.
func (s *Stage) Fail(cause error) { s.ready.Store(&cause) }

func (s *Stage) isReady() error {
	if cause := s.ready.Load(); cause != nil {
		return *cause
	}
	return nil
}

// PassDay lets a day go by, minute by minute.
func (s *Stage) PassDay(ctx context.Context) error {
	for s.Clock.Now().Before(s.day.end) {
		before := s.live.looks.Load()
		s.Clock.Step(time.Minute)
		for s.live.looks.Load() == before {
			select {
			case <-ctx.Done():
				return fmt.Errorf("wait for the next minute: %w", ctx.Err())
			case <-time.After(100 * time.Microsecond):
			}
		}
	}
	return nil
}

// Write creates objects with their statuses, several at a time.
func (s *Stage) Write(ctx context.Context, objects ...client.Object) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for _, object := range objects {
		group.Go(func() error {
			status := object.DeepCopyObject().(client.Object)
			if err := s.Client.Create(ctx, object); err != nil {
				return err
			}
			status.SetResourceVersion(object.GetResourceVersion())
			return s.Client.Status().Update(ctx, status)
		})
	}
	return group.Wait()
}

const daySpan = 24 * time.Hour

// day makes the figures of policies move while a day goes by: the cache's own stand still.
type day struct {
	client.Reader
	clock *clocktesting.FakeClock
	end   time.Time
}

// led is false for a while in the morning, as while no manager ran.
func (d *day) led(context.Context) (bool, error) {
	left := d.end.Sub(d.clock.Now())
	return left < 17*time.Hour || left > 18*time.Hour, nil
}

// List gives policies other watts at other times.
func (d *day) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if err := d.Reader.List(ctx, list, options...); err != nil {
		return err
	}
	policies, isPolicies := list.(*v1alpha1.EnergyPolicyList)
	left := d.end.Sub(d.clock.Now())
	if !isPolicies || left <= 0 {
		return nil
	}
	items := policies.Items
	policies.Items = nil
	for i := range items {
		policy := items[i].DeepCopy()
		if policy.Status.Watts != nil {
			*policy.Status.Watts = int64(float64(*policy.Status.Watts) * shape(left.Hours()) / shape(0))
		}
		if left > 20*time.Hour {
			policy.Status.Proven = nil // proven since
		}
		policies.Items = append(policies.Items, *policy)
	}
	return nil
}

// shape of a day's power, some hours before its end.
func shape(hours float64) float64 {
	return 1 + .17*math.Cos(2*math.Pi*(hours-5)/24) + .012*math.Sin(hours*19) + .008*math.Sin(hours*61)
}

// live hears of all nodes named worker-NN.
type live struct {
	clock *clocktesting.FakeClock
	looks atomic.Int64
}

// Heard has some load on each CPU.
func (l *live) Heard(node string) (*model.NodeRates, time.Time) {
	rates := &model.NodeRates{Node: node, Time: l.clock.Now()}
	for cpu := range 96 {
		busy := .06 + .05*math.Sin(float64(cpu*7))
		switch core := cpu % 48; {
		case core >= 1 && core <= 9:
			busy = .42 + .3*math.Sin(float64(cpu))
		case core >= 12 && core < 30:
			busy = .62 + .35*math.Sin(float64(cpu*3))
		}
		rates.CPUs = append(rates.CPUs, model.CPURates{CPU: cpu, BusyCores: units.Cores(busy)})
	}
	for v := range 20 {
		bits := units.BitsPerSecond(4.1e8 / float64(v+1))
		rates.VMs = append(rates.VMs, model.VMRates{
			PodUID: fmt.Sprintf("pod-%s-%d", node, v), VCPUs: []model.VCPURates{{ThreadRates: model.ThreadRates{RunCores: .31}}},
			Taps: []model.TapRates{{ToVM: model.TrafficRates{BitsPerSecond: bits}, FromVM: model.TrafficRates{BitsPerSecond: bits / 3}}},
		})
	}
	return rates, l.clock.Now().Add(-4 * time.Second)
}

// EachPower has a model for two nodes, and meters for the others.
func (l *live) EachPower(call func(node string, power model.Power, metered bool)) {
	defer l.looks.Add(1)
	for i := 1; i <= 14; i++ {
		power := model.Power{Source: model.SourcePrometheus, Watts: units.Watts(190 + 7*i), Time: l.clock.Now().Add(-12 * time.Second)}
		if i > 12 {
			power.Source = model.SourceModel
		}
		call(fmt.Sprintf("worker-%02d", i), power, i <= 12)
	}
}

// Potential is that Affinity would save something, and Buffering nothing now.
func (l *live) Potential(string, float64) map[model.Lever]ledger.Range {
	return map[model.Lever]ledger.Range{model.LeverAffinity: {Value: 14.2, Low: 5.9, High: 22.5}, model.LeverBuffering: {}}
}

// Proven is that Affinity saves on each node with a meter.
func (l *live) Proven(_, node string) map[model.Lever]ledger.Range {
	if node > "worker-12" {
		return nil
	}
	return map[model.Lever]ledger.Range{model.LeverAffinity: {Value: 12.1, Low: 9.4, High: 14.8}}
}

// Booked is something measured, and something modelled from before the node had a meter.
func (l *live) Booked(_, node string, _ float64) []ledger.UnitSaving {
	const kWh = 3.6e6
	return []ledger.UnitSaving{
		{Unit: node, Lever: model.LeverAffinity, Saved: ledger.Range{Value: 9.3 * kWh, Low: 7.6 * kWh, High: 11 * kWh}},
		{Unit: node, Lever: model.LeverBuffering, Modelled: true, Saved: ledger.Range{Value: 1.7 * kWh, Low: -.4 * kWh, High: 3.8 * kWh}},
	}
}
