package accelerated

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/cluster/stack"
)

const (
	// startTimeout includes a cold build of the control planes.
	startTimeout = 20 * time.Minute
	pause        = 20 * time.Millisecond
)

// A fleet of simulated nodes on a real API server: a lever waits, is tried on all of
// them by schedules that their agents follow, and its memory outlasts the manager.
func TestLeverIsTried(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Options{Binaries: binaries.FromEnvironment(os.Getenv, os.Stderr), KubeVirt: cluster.KubeVirtAPI})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := v1alpha1.AddToScheme(c.Client().Scheme()); err != nil {
		t.Fatal(err)
	}
	if err := stack.Install(ctx, c); err != nil {
		t.Fatal(err)
	}
	f, err := Start(ctx, Options{Cluster: c, Namespace: "shop", Labels: map[string]string{"app": "web"}, Nodes: 4, VMs: 10, Seed: 1, Dir: t.TempDir(), Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, object := range []client.Object{profile(), policy()} {
		if err := c.Client().Create(ctx, object); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	err = f.Run(ctx, 30*time.Minute, pause, func(time.Time) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("30 min in %s", time.Since(began))
	var plans v1alpha1.NodePlanList
	if err := c.Client().List(ctx, &plans); err != nil {
		t.Fatal(err)
	}
	for i := range plans.Items {
		p := &plans.Items[i]
		t.Logf("%s: %s %s, %d VMs, in force %d, trials %+v", p.Name, p.Spec.Reason, p.Spec.Message, len(p.Spec.VMs), p.Status.VMsInForce, p.Spec.Trials)
	}
	var policies v1alpha1.EnergyPolicyList
	if err := c.Client().List(ctx, &policies); err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", policies.Items[0].Status)
}

func profile() *v1alpha1.VMNetworkProfile {
	return &v1alpha1.VMNetworkProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: v1alpha1.VMNetworkProfileSpec{
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, TrafficClass: v1alpha1.TrafficThroughput,
		},
	}
}

func policy() *v1alpha1.EnergyPolicy {
	return &v1alpha1.EnergyPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "fleet"},
		Spec: v1alpha1.EnergyPolicySpec{
			Mode: v1alpha1.ModeEnforce, Levers: []v1alpha1.Lever{v1alpha1.LeverAffinity},
			Energy: v1alpha1.EnergySettings{Sources: []v1alpha1.EnergySource{{Type: v1alpha1.EnergySourceRAPL}}},
		},
	}
}
