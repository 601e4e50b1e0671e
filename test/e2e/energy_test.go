package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/cluster/stack"
	"github.com/joulevirt/joulevirt/test/prometheus"
)

// exportedWatts is this machine's power by the stand-in for Kepler.
const exportedWatts = 100

// meter is a real Prometheus server behind a proxy that asks for a token, as
// production has it. It scrapes a stand-in for this node's Kepler.
type meter struct {
	exporter *prometheus.Exporter
	proxy    *prometheus.Proxy
	secret   *corev1.Secret
}

func (f *fixture) meter() *meter {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), vmTimeout)
	defer cancel()
	program, err := prometheus.Program(ctx, binaries.FromEnvironment(os.Getenv, os.Stderr).Cache, os.Stderr)
	if err != nil {
		f.Fatal(err)
	}
	server, err := prometheus.Start(ctx, prometheus.Options{Program: program, Dir: f.TempDir()})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := server.Stop(); err != nil {
			f.Error(err)
		}
	})
	m := &meter{exporter: prometheus.NewExporter()}
	f.Cleanup(m.exporter.Close)
	m.exporter.Set(nodeName,
		prometheus.Meter{Family: prometheus.Kepler, Zone: "package", Watts: exportedWatts},
		prometheus.Meter{Family: prometheus.Kepler, Zone: "core", Watts: 60},
		prometheus.Meter{Family: prometheus.Kepler, Zone: "dram", Watts: 8},
	)
	if err := server.Scrape(m.exporter.Target("kepler", nodeName)); err != nil {
		f.Fatal(err)
	}
	if m.proxy, err = prometheus.NewProxy(server); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(m.proxy.Close)
	m.secret = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: stack.Namespace, Name: f.namespace, Labels: map[string]string{v1alpha1.LabelEnergyCredentials: ""}},
		Data:       map[string][]byte{"token": []byte("first"), "ca.crt": m.proxy.CA},
	}
	m.proxy.Admit("first")
	f.create(m.secret)
	return m
}

// settings are those of a policy that trusts the meter alone.
func (m *meter) settings() v1alpha1.EnergySettings {
	return v1alpha1.EnergySettings{Sources: []v1alpha1.EnergySource{{
		Type: v1alpha1.PowerPrometheus,
		Prometheus: &v1alpha1.PrometheusSource{
			URL:    m.proxy.URL,
			Secret: m.secret.Name, Matchers: map[string]v1alpha1.MatcherValue{"job": "kepler"},
		},
		// Some queries: the last reading is soon too old.
		Freshness: &metav1.Duration{Duration: 10 * time.Second},
	}}}
}

// metered is satisfied when a policy has its node's power from the meter.
func (f *fixture) metered(policy *v1alpha1.EnergyPolicy) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := f.client.Get(ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
			return err
		}
		status := policy.Status
		switch {
		case status.Nodes.Metered != 1 || status.Watts == nil || len(status.EnergySources) != 1:
			return fmt.Errorf("status is %+v", status)
		case *status.Watts < exportedWatts*9/10 || *status.Watts > exportedWatts*11/10:
			return fmt.Errorf("%d W, and the exporter says %d", *status.Watts, exportedWatts)
		case status.EnergySources[0].Nodes != 1:
			return fmt.Errorf("source is %+v", status.EnergySources[0])
		}
		return nil
	}
}

// unmetered is satisfied when a policy says why the meter is not used.
func (f *fixture) unmetered(policy *v1alpha1.EnergyPolicy, reason energy.Reason) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := f.client.Get(ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
			return err
		}
		condition := meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionMeterAvailable)
		if condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason != string(reason) {
			return fmt.Errorf("condition is %+v, want reason %s", condition, reason)
		}
		return nil
	}
}

func TestMeteredPolicyRevertsWhenItsMeterFails(t *testing.T) {
	f := newFixture(t)
	every := asTaskset(allCPUs(t))
	web := f.startVM(f.newVM("web", 2))
	meter, reader := f.meter(), f.scraper()
	f.profile("web")
	policy := f.enforceBy(meter.settings(), v1alpha1.LeverAffinity)
	f.eventually("the policy knows its node's power", f.metered(policy))
	f.eventually("the plan is in force", f.applied(1))
	series := fmt.Sprintf(`joulevirt_node_power_watts{node=%q,source="Prometheus"}`, nodeName)
	f.eventually("the manager's metrics have it", func(ctx context.Context) error {
		status, body, err := metrics(ctx, world.Manager(), reader)
		if err != nil || status != http.StatusOK || !strings.Contains(body, series) {
			return fmt.Errorf("status %d, error %w, no %s", status, err, series)
		}
		return nil
	})

	meter.exporter.Fail(nodeName, prometheus.Frozen)
	f.eventually("the policy says that the meter stands still", f.unmetered(policy, energy.ReasonFrozen))
	f.eventually("all threads are unrestricted", web.unrestricted(every))

	meter.exporter.Fail(nodeName, prometheus.Working)
	f.eventually("the policy knows its node's power again", f.metered(policy))
	f.eventually("the plan is in force again", f.applied(1))

	meter.proxy.Expire("first")
	f.eventually("the policy says that the token expired", f.unmetered(policy, energy.ReasonUnauthorized))
	meter.proxy.Admit("second")
	meter.secret.Data["token"] = []byte("second")
	if err := f.client.Update(t.Context(), meter.secret); err != nil {
		t.Fatal(err)
	}
	f.eventually("the new token serves", f.metered(policy))
}

// ownSource is the agent's own source of power on this machine. A machine that
// is a VM counts as one without a meter even if it shows counters.
func (f *fixture) ownSource() v1alpha1.PowerSource {
	f.Helper()
	var report v1alpha1.NodeReport
	f.eventually("the agent reports", func(ctx context.Context) error {
		return f.client.Get(ctx, types.NamespacedName{Name: nodeName}, &report)
	})
	zones, err := filepath.Glob("/sys/class/powercap/*:*/energy_uj")
	if err != nil {
		f.Fatal(err)
	}
	if len(zones) == 0 || report.Status.Topology.Nested {
		return v1alpha1.PowerModel
	}
	return v1alpha1.PowerRAPL
}

// reportPower wants the NodeReport to have the node's power.
func (f *fixture) reportPower(source v1alpha1.PowerSource) {
	f.Helper()
	f.eventually("the report has the node's power", func(ctx context.Context) error {
		var report v1alpha1.NodeReport
		if err := f.client.Get(ctx, types.NamespacedName{Name: nodeName}, &report); err != nil {
			return err
		}
		power := report.Status.Power
		measured := meta.IsStatusConditionTrue(report.Status.Conditions, v1alpha1.ConditionMeterAvailable)
		modelled := source == v1alpha1.PowerModel
		if power.Source != source || power.Watts == nil || power.MeasuredAt == nil || measured == modelled {
			return fmt.Errorf("power is %+v, MeterAvailable %t, want source %s", power, measured, source)
		}
		return nil
	})
}

// expectPower checks that rates have the power of a node, and of one of its VMs, which is no more.
func expectPower(rates *model.NodeRates, vm string, source v1alpha1.PowerSource) error {
	power := rates.Power
	if power == nil || power.Source != source || power.Watts <= 0 || power.Time.IsZero() || rates.Totals == nil {
		return fmt.Errorf("power is %+v, totals %+v", power, rates.Totals)
	}
	var sum units.Watts
	found := false
	for i := range rates.VMs {
		if watts := rates.VMs[i].Watts; watts != nil {
			found = found || rates.VMs[i].Name == vm && *watts > 0
			sum += *watts
		}
	}
	if !found || sum > power.Watts {
		return fmt.Errorf("VM %s has no watts, or all VMs' %v W are more than the node's %v W", vm, sum, power.Watts)
	}
	return nil
}
