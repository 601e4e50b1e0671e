//go:build e2e

// Package e2e tests what the levers on a VM's threads do, on a real node with the product as
// its pods: real kubelet, KubeVirt, QEMU VMs, the shipped manifests.
package e2e

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/test/env/node"
	"github.com/joulevirt/joulevirt/test/env/product"
)

// TestLevers tells the stories of a node with three VMs. Each leaves no policy and no profile.
//
//e2e:alone it measures how long threads wait
func TestLevers(t *testing.T) {
	f := newFixture(t)
	for _, story := range []struct {
		name string
		tell func(*fixture)
	}{
		{"Pools", (*fixture).pools},
		{"Slices", (*fixture).slices}, // the last of levers: the guard keeps them away from its VM
		{"AgentServes", (*fixture).agentServes},
		{"Findings", (*fixture).findings},
	} {
		t.Run(story.name, func(t *testing.T) {
			part := *f
			part.T = t
			story.tell(&part)
		})
	}
}

// newFixture starts a node with the product and the VMs. All have one vCPU: a pool must have a
// CPU for each vCPU of a VM, and small machines have two.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	e := node.StartForTest(t, node.Options{Product: true})
	f := &fixture{T: t, Environment: e, node: e.Nodes()[0]}
	f.must(product.Install(t.Context(), e, product.QuickArguments()...))
	f.must(e.Client().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}))
	f.web, f.compute = &machine{name: "web"}, []*machine{{name: "sums-a"}, {name: "sums-b"}}
	every := allCPUs(t)
	starts, ctx := errgroup.WithContext(t.Context())
	for _, m := range f.machines() {
		m.allCPUs = every
		starts.Go(func() error { return f.start(ctx, m) })
	}
	f.must(starts.Wait())
	return f
}

// allCPUs is the mask of an unrestricted thread of this machine, as taskset prints it: to
// distinguish masks, tests need two CPUs.
func allCPUs(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		t.Fatal(err)
	}
	online := strings.TrimSpace(string(text))
	if !strings.ContainsAny(online, "-,") {
		t.Fatalf("only CPU %s is online: a pin could not be distinguished from none", online)
	}
	if online == "0-1" {
		return "0,1"
	}
	return online
}
