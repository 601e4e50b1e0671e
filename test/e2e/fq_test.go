package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// TestNodeWithoutFq: this machine's kernel can neither shape what VMs send nor hold packets of taps.
// Everybody reports it, and no queue is touched. What a kernel with fq does is tested in guests:
// test/guest/shaping and test/guest/buffering.
func TestNodeWithoutFq(t *testing.T) {
	f := newFixture(t)
	names := []string{"backup-a", "backup-b"}
	machines, taps := map[string]*machine{}, map[string]string{}
	for _, name := range names {
		vm := f.newVM(name, 1)
		vm.Spec.Template.ObjectMeta.Labels["role"] = "backup"
		machines[name] = f.startVM(vm)
		var err error
		if taps[name], err = machines[name].tapQueues(); err != nil {
			t.Fatal(err)
		}
	}
	profile := &v1alpha1.VMNetworkProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "backup"},
		Spec: v1alpha1.VMNetworkProfileSpec{
			Selector:     metav1.LabelSelector{MatchLabels: map[string]string{"role": "backup"}},
			TrafficClass: v1alpha1.TrafficDeferrable, MaxDelay: &metav1.Duration{Duration: 20 * time.Second},
			LatencyBudget: &metav1.Duration{Duration: 2 * time.Millisecond},
		},
	}
	f.create(profile)
	policy := f.enforceLevers(v1alpha1.LeverShaping, v1alpha1.LeverBuffering)
	f.leverBlocked(profile, v1alpha1.LeverShaping, v1alpha1.ReasonShapingUnsupported, len(names))
	f.leverBlocked(profile, v1alpha1.LeverBuffering, v1alpha1.ReasonBufferingUnsupported, len(names))
	f.delete(policy)
	for name, m := range machines {
		if is, err := m.tapQueues(); err != nil || is != taps[name] {
			t.Errorf("VM %s: the taps' queues were\n%sand are\n%s%v", name, taps[name], is, err)
		}
	}
}

// missingFq is what this machine's kernel lacks to shape and hold packets.
const missingFq = "the kernel has no fq (module sch_fq)"

// tapQueues are the queueing disciplines of a VM's taps, a line each.
func (m *machine) tapQueues() (string, error) {
	namespace, err := netns.GetFromPid(m.sandbox.QEMUPID())
	if err != nil {
		return "", err
	}
	defer namespace.Close()
	handle, err := netlink.NewHandleAt(namespace)
	if err != nil {
		return "", err
	}
	defer handle.Close()
	links, err := handle.LinkList()
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, link := range links {
		if _, is := link.(*netlink.Tuntap); !is {
			continue
		}
		qdiscs, err := handle.QdiscList(link)
		if err != nil {
			return "", err
		}
		for _, q := range qdiscs {
			q.Attrs().Statistics = nil // which change with each packet
			fmt.Fprintf(&text, "%s: %s %#v\n", link.Attrs().Name, q.Type(), q)
		}
	}
	if text.Len() == 0 {
		return "", fmt.Errorf("VM %s has no tap, or one without a queueing discipline, among %d devices", m.vmi.Name, len(links))
	}
	return text.String(), nil
}

// leverBlocked waits until report and profile say that a lever cannot act on a profile's VMs on this
// machine, and why.
func (f *fixture) leverBlocked(profile *v1alpha1.VMNetworkProfile, lever v1alpha1.Lever, reason string, vms int) {
	f.Helper()
	f.eventually("the report says what the kernel lacks", func(ctx context.Context) error {
		var report v1alpha1.NodeReport
		if err := f.client.Get(ctx, types.NamespacedName{Name: nodeName}, &report); err != nil {
			return err
		}
		at := slices.IndexFunc(report.Status.Capabilities, func(c v1alpha1.Capability) bool { return c.Name == string(lever) })
		if at < 0 {
			return fmt.Errorf("it names %+v", report.Status.Capabilities)
		}
		if c := report.Status.Capabilities[at]; c.Available || !strings.Contains(c.Message, missingFq) {
			return fmt.Errorf("it says %+v", c)
		}
		return nil
	})
	f.eventually("the profile says that "+string(lever)+" is blocked, and why", func(ctx context.Context) error {
		if err := f.client.Get(ctx, client.ObjectKeyFromObject(profile), profile); err != nil {
			return err
		}
		blocked := 0
		for _, example := range profile.Status.Examples {
			if example.Lever != lever {
				continue
			}
			if example.State != v1alpha1.LeverBlocked || example.Reason != reason || !strings.Contains(example.Message, missingFq) {
				return fmt.Errorf("it says %+v", example)
			}
			blocked++
		}
		if blocked != vms {
			return fmt.Errorf("it says so of %d VMs of %d: %+v", blocked, vms, profile.Status.Examples)
		}
		return nil
	})
}
