package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// missingForBuffering is what this machine's kernel lacks to hold packets.
const missingForBuffering = "the kernel has no fq (module sch_fq)"

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

// bufferingBlocked waits until everybody tells that no packet of the VMs of a profile can
// be held on this machine, and why.
func (f *fixture) bufferingBlocked(profile *v1alpha1.VMNetworkProfile, vms int) {
	f.Helper()
	f.eventually("the report tells what the kernel lacks", func(ctx context.Context) error {
		var report v1alpha1.NodeReport
		if err := f.client.Get(ctx, types.NamespacedName{Name: nodeName}, &report); err != nil {
			return err
		}
		at := slices.IndexFunc(report.Status.Capabilities, func(c v1alpha1.Capability) bool { return c.Name == "Buffering" })
		if at < 0 {
			return fmt.Errorf("it names %+v", report.Status.Capabilities)
		}
		if c := report.Status.Capabilities[at]; c.Available || !strings.Contains(c.Message, missingForBuffering) {
			return fmt.Errorf("it says %+v", c)
		}
		return nil
	})
	f.eventually("the profile tells that buffering is blocked, and why", func(ctx context.Context) error {
		if err := f.client.Get(ctx, client.ObjectKeyFromObject(profile), profile); err != nil {
			return err
		}
		blocked := 0
		for _, example := range profile.Status.Examples {
			if example.Lever != v1alpha1.LeverBuffering {
				continue
			}
			if example.State != v1alpha1.LeverBlocked || example.Reason != v1alpha1.ReasonBufferingUnsupported || !strings.Contains(example.Message, missingForBuffering) {
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
