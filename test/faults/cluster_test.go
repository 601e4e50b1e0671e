//go:build e2e

package faults

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/test/cluster/stack"
	"github.com/joulevirt/joulevirt/test/env/product"
	"github.com/joulevirt/joulevirt/test/prometheus"
)

const (
	// staleAfter is the agent's --stale-after in 1/30 of the shipped time, and away is in the same
	// scale how long the API server is away for 10 minutes.
	staleAfter = 30 * time.Second
	away       = 20 * time.Second
	// jitter is what an agent may be early, and renewal how long ago it may have read the Lease.
	jitter  = staleAfter / 5
	renewal = 3 * time.Second
)

// apiServerAway stops the API server for what are 10 minutes to the agent: levers stay.
func (f *fault) apiServerAway() {
	f.endAgent()
	f.startAgent("--stale-after=" + staleAfter.String()) // the next agent has it no more
	f.eventually("levers are in force", f.inForce)
	before, leading := f.actedNow(), f.leader()
	began := time.Now()
	f.must(f.APIServer().Signal(syscall.SIGSTOP))
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ; time.Since(began) < away; <-tick.C {
		after := f.actedNow()
		// What a machine that stood still shows later is another story.
		if time.Since(began) < staleAfter-jitter-renewal && !maps.Equal(before, after) {
			f.Errorf("levers act on VMs %v after %v without API server, before on %v", after, time.Since(began), before)
		}
	}
	f.must(f.APIServer().Signal(syscall.SIGCONT))
	f.ends("the manager that led", leading)
}

// etcdFull has etcd refuse writes as it does when it has no space. The manager cannot renew its Lease
// and ends; levers stay.
func (f *fault) etcdFull() {
	before, leading := f.actedNow(), f.leader()
	f.must(f.FillEtcd(f.Context(), true))
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "full"}}
	f.eventually("writes fail", func(ctx context.Context) error {
		if err := f.Client().Create(ctx, config, client.DryRunAll); err != nil {
			return err
		}
		if err := f.Client().Create(ctx, config); err == nil || !strings.Contains(err.Error(), "database space exceeded") {
			return fmt.Errorf("the write says: %w", err)
		}
		return nil
	})
	f.ends("the manager that led", leading)
	if after := f.actedNow(); !maps.Equal(before, after) {
		f.Errorf("levers act on VMs %v, before on %v", after, before)
	}
	f.must(f.FillEtcd(f.Context(), false))
	f.eventually("writes succeed", func(ctx context.Context) error { return f.Client().Create(ctx, config) })
}

// watts is the node's power by the stand-in for Kepler.
const watts = 100

// prometheusFails has the policy trust a Prometheus server alone, behind a proxy that asks for a
// token, which then is away, slow, lies, stands still and refuses the token. It is not believed until
// it can be trusted again, and without a meter levers are reverted.
func (f *fault) prometheusFails() {
	program, err := prometheus.Program(f.Context(), f.programs)
	f.must(err)
	server, err := prometheus.Start(f.Context(), prometheus.Options{Program: program, Dir: f.TempDir()})
	f.must(err)
	f.Cleanup(func() { f.must(server.Stop()) })
	exporter := prometheus.NewExporter()
	f.Cleanup(exporter.Close)
	says := func(watts float64) {
		exporter.Set(f.node.Name,
			prometheus.Meter{Family: prometheus.Kepler, Zone: "package", Watts: watts},
			prometheus.Meter{Family: prometheus.Kepler, Zone: "core", Watts: watts / 2},
			prometheus.Meter{Family: prometheus.Kepler, Zone: "dram", Watts: watts / 10})
	}
	says(watts)
	f.must(server.Scrape(exporter.Target("kepler", f.node.Name)))
	proxy, err := prometheus.NewProxy(server, f.MachineAddress())
	f.must(err)
	f.Cleanup(proxy.Close)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: product.Namespace, Name: "meter", Labels: map[string]string{v1alpha1.LabelEnergyCredentials: ""}},
	}
	f.create(secret)
	token := func(token string) {
		proxy.Admit(token)
		secret.Data = map[string][]byte{"token": []byte(token), "ca.crt": proxy.CA}
		f.must(f.Client().Update(f.Context(), secret))
	}
	token("first")
	f.patch(f.policy, `{"spec":{"energy":{"allowModelled":false,"sources":[{"type":"Prometheus","freshness":"5s",`+
		`"prometheus":{"url":%q,"secret":%q,"matchers":{"job":"kepler"}}}]}}}`, proxy.URL, secret.Name)
	f.metered()
	f.reportsWatts()
	for _, wrong := range []struct {
		name       string
		begin, end func()
		// why the meter is not used.
		why []energy.Reason
	}{
		{
			"away", func() { f.must(server.Stop()) }, func() { f.must(server.Restart(f.Context(), true)) },
			[]energy.Reason{energy.ReasonUnreachable},
		},
		{"slow", func() { f.must(server.Pause()) }, func() { f.must(server.Resume()) }, []energy.Reason{energy.ReasonUnreachable}},
		// The mean over the seconds since is more, or much more, than any machine draws.
		{"lying", func() { says(1e5 * watts) }, func() { says(watts) }, []energy.Reason{energy.ReasonJumped, energy.ReasonImplausible}},
		{"refusing", func() { proxy.Expire("first") }, func() { token("second") }, []energy.Reason{energy.ReasonUnauthorized}},
		{
			"frozen", func() { exporter.Fail(f.node.Name, prometheus.Frozen) }, func() { exporter.Fail(f.node.Name, prometheus.Working) },
			[]energy.Reason{energy.ReasonFrozen},
		},
	} {
		f.Logf("Prometheus is %s", wrong.name)
		wrong.begin()
		f.unmetered(wrong.why)
		if wrong.name == "frozen" {
			f.eventually("levers are reverted", f.threadsUntouched)
		}
		wrong.end()
		f.metered()
	}
	f.patch(f.policy, `{"spec":{"energy":{"allowModelled":true,"sources":null}}}`)
}

// reportsWatts waits until policy and metrics have the node's power from the meter.
func (f *fault) reportsWatts() {
	f.Helper()
	reader, err := stack.MetricsToken(f.Context(), f.Cluster, f.namespace)
	f.must(err)
	series := fmt.Sprintf(`joulevirt_node_power_watts{node=%q,source="Prometheus"}`, f.node.Name)
	f.eventually("the policy and the manager's metrics have the node's power", func(ctx context.Context) error {
		var policy v1alpha1.EnergyPolicy
		if err := f.Client().Get(ctx, client.ObjectKeyFromObject(f.policy), &policy); err != nil {
			return err
		}
		if s := policy.Status; s.Nodes.Metered != 1 || s.Watts == nil || *s.Watts < watts*9/10 || *s.Watts > watts*11/10 ||
			len(s.EnergySources) != 1 || s.EnergySources[0].Nodes != 1 {
			return fmt.Errorf("status is %+v, and the exporter says %d W", s, watts)
		}
		_, pod, err := product.Lease(ctx, f.Client())
		if err != nil {
			return err
		}
		status, body, err := stack.Scrape(ctx, net.JoinHostPort(pod.Status.PodIP, "8443"), reader)
		if err != nil || status != http.StatusOK || !strings.Contains(body, series) {
			return fmt.Errorf("status %d, error %w, no %s", status, err, series)
		}
		return nil
	})
}

// metered waits until the meter is used and levers are in force.
func (f *fault) metered() {
	f.Helper()
	f.eventually("the meter is used", func(ctx context.Context) error {
		if condition := f.meter(ctx); condition == nil || condition.Status != metav1.ConditionTrue {
			return fmt.Errorf("MeterAvailable is %+v", condition)
		}
		return f.inForce(ctx)
	})
}

// unmetered waits until the policy says why the meter is not used.
func (f *fault) unmetered(why []energy.Reason) {
	f.Helper()
	f.eventually(fmt.Sprintf("the meter is not used: %v", why), func(ctx context.Context) error {
		condition := f.meter(ctx)
		if condition == nil || condition.Status != metav1.ConditionFalse || !slices.Contains(why, energy.Reason(condition.Reason)) {
			return fmt.Errorf("MeterAvailable is %+v", condition)
		}
		return nil
	})
}

// meter is what the policy says of its meter.
func (f *fault) meter(ctx context.Context) *metav1.Condition {
	var policy v1alpha1.EnergyPolicy
	if err := f.Client().Get(ctx, client.ObjectKeyFromObject(f.policy), &policy); err != nil {
		return nil
	}
	return meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionMeterAvailable)
}
