package page

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	cached "github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/cli/access"
	"github.com/joulevirt/joulevirt/internal/cli/open"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/page"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Stage serves the page from a cache of an API server, as the manager does, and as kubectl
// joulevirt page forwards it.
type Stage struct {
	// Manager is the address of the page as the manager serves it, Address that of the local
	// proxy.
	Manager, Address string
	// Client writes what the page shows.
	Client client.Client

	// Clock of the page. It begins trendMinutes ago.
	Clock *clocktesting.FakeClock

	ready atomic.Pointer[error]
	end   func()
}

// trendMinutes are of the trend of a policy's power, a point each.
const trendMinutes = 10

// Start serves the objects of an API server. Call End when done.
func Start(ctx context.Context, config *rest.Config) (*Stage, error) {
	scheme, err := cached.NewScheme()
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
	s := &Stage{Client: writer, Clock: clocktesting.NewFakeClock(time.Now().Add(-trendMinutes * time.Minute))}
	p := page.New(page.Options{
		Reader: objects, Live: live{}, Ready: s.isReady, Leads: func() bool { return true },
		Led:     func(context.Context) (bool, error) { return true, nil },
		Version: "v1.0.0", Clock: s.Clock, Log: logr.Discard(),
	})
	handler, err := authenticated(config, p.Handler())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	tasks.Go(func() { _ = objects.Start(ctx) }) // fails only when it cannot be ended
	tasks.Go(func() { _ = p.Start(ctx) })       // never fails
	manager := httptest.NewTLSServer(handler)
	s.Manager = manager.URL
	local := httptest.NewUnstartedServer(nil)
	to, err := url.Parse(s.Manager)
	if err != nil {
		cancel()
		return nil, err
	}
	tokens := &open.Tokens{Client: clients, Account: types.NamespacedName{Namespace: "joulevirt-system", Name: "joulevirt-page"}, Clock: clock.RealClock{}}
	local.Config.Handler = open.NewProxy(local.Listener.Addr().String(), to, tokens)
	local.Start()
	s.Address = local.URL
	s.end = sync.OnceFunc(func() { local.Close(); manager.Close(); cancel(); tasks.Wait() })
	return s, nil
}

// authenticated adds the filter of the manager's metrics server.
func authenticated(config *rest.Config, next http.Handler) (http.Handler, error) {
	web, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	filter, err := page.Authenticate([]string{access.PageAudience})(config, web)
	if err != nil {
		return nil, err
	}
	return filter(logr.Discard(), next)
}

// End ends serving. It may be called again.
func (s *Stage) End() { s.end() }

// Fail makes the page not ready, for a cause. Nil: it is ready.
func (s *Stage) Fail(cause error) { s.ready.Store(&cause) }

func (s *Stage) isReady() error {
	if cause := s.ready.Load(); cause != nil {
		return *cause
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

// live has rates and power of all nodes worker-NN.
type live struct{}

// Rates has some load on each CPU.
func (live) Rates(node string) (*model.NodeRates, time.Time) {
	rates := &model.NodeRates{Node: node, Time: time.Now()}
	for cpu := range 96 {
		rates.CPUs = append(rates.CPUs, model.CPURates{CPU: cpu, BusyCores: units.Cores(float64(cpu%48) / 48)})
	}
	for v := range 20 {
		bits := units.BitsPerSecond(4.1e8 / float64(v+1))
		rates.VMs = append(rates.VMs, model.VMRates{
			PodUID: fmt.Sprintf("pod-%s-%d", node, v), VCPUs: []model.VCPURates{{ThreadRates: model.ThreadRates{RunCores: .31}}},
			Taps: []model.TapRates{{ToVM: model.TrafficRates{BitsPerSecond: bits}, FromVM: model.TrafficRates{BitsPerSecond: bits / 3}}},
		})
	}
	return rates, time.Now().Add(-4 * time.Second)
}

// EachPower has a model for two nodes, and meters for the others.
func (live) EachPower(call func(node string, power model.Power, metered bool)) {
	for i := 1; i <= 14; i++ {
		power := model.Power{Source: v1alpha1.PowerPrometheus, Watts: units.Watts(190 + 7*i), Time: time.Now().Add(-12 * time.Second)}
		if i > 12 {
			power.Source = v1alpha1.PowerModel
		}
		call(fmt.Sprintf("worker-%02d", i), power, i <= 12)
	}
}
