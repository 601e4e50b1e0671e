//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// slices need a profile and a policy, follow vCPUs that are plugged in, and go with the profile. They
// are planned however busy the machine is; pins are not.
func (f *fixture) slices() {
	web := f.web
	// A busy machine has vCPUs wait, whatever the lever does.
	anyWait := v1alpha1.ServiceLevels{MaxStealPercent: 100}
	f.profile(f.compute[0], v1alpha1.TrafficThroughput, anyWait)
	profile := f.profile(web, v1alpha1.TrafficInteractive, anyWait)
	f.eventually("the profile counts its VM", func(ctx context.Context) error {
		if err := f.Client().Get(ctx, client.ObjectKeyFromObject(profile), profile); err != nil {
			return err
		}
		if profile.Status.GovernedVMs != 1 {
			return fmt.Errorf("governedVMs is %d", profile.Status.GovernedVMs)
		}
		return nil
	})
	if _, err := f.plan(f.Context()); !apierrors.IsNotFound(err) {
		f.Errorf("a plan without a policy: error %v, want none found", err)
	}
	if err := f.untouched(f.Context()); err != nil {
		f.Errorf("without a policy: %v", err)
	}

	policy := f.policy(v1alpha1.ModeEnforce, v1alpha1.LeverSlice)
	f.eventually("the VM has slices", web.networkSliced)
	f.eventually("the plan is in force", f.applied(2))
	f.eventually("the profile reports that a lever is in force on its VM", func(ctx context.Context) error {
		if err := f.Client().Get(ctx, client.ObjectKeyFromObject(profile), profile); err != nil {
			return err
		}
		inForce := slices.ContainsFunc(profile.Status.Examples, func(e v1alpha1.VMExample) bool {
			return e.Lever == v1alpha1.LeverSlice && e.State == v1alpha1.LeverInForce
		})
		if profile.Status.VMsInForce != 1 || !inForce {
			return fmt.Errorf("status is %+v", profile.Status)
		}
		return nil
	})
	f.ownedByNode()

	f.plugIn(web, 2)
	f.eventually("the vCPU that was plugged in has a slice too", func(ctx context.Context) error {
		vcpus, err := web.vcpus(ctx)
		if err != nil || len(vcpus) != 2 {
			return fmt.Errorf("the vCPUs are %+v: want two; error %w", vcpus, err)
		}
		return web.networkSliced(ctx)
	})
	f.guestFailsAfterLever(web, policy)

	f.delete(profile)
	f.eventually("the plan acts on nothing", f.applied(0))
	f.undo(policy)
}

// plugIn gives a VM more vCPUs, as virt-launcher does when KubeVirt has moved a VM with more
// sockets to a pod with room for them.
func (f *fixture) plugIn(m *machine, vcpus int) {
	f.Helper()
	var pod string
	for uid := range m.vmi.Status.ActivePods {
		pod = f.podName(uid)
	}
	_, err := f.RunKubectl(f.Context(), "exec", "--namespace="+shop, pod, "--container=compute", "--",
		"virsh", "setvcpus", shop+"_"+m.name, fmt.Sprint(vcpus), "--live")
	f.must(err)
}

// podName is the name of a pod of the VMs' namespace.
func (f *fixture) podName(uid types.UID) string {
	f.Helper()
	name, err := f.RunKubectl(f.Context(), "get", "pods", "--namespace="+shop, "--selector="+kubevirtv1.AppLabel+"=virt-launcher",
		fmt.Sprintf("--output=jsonpath={.items[?(@.metadata.uid==%q)].metadata.name}", uid))
	f.must(err)
	return name
}

// ownedByNode checks that plan and report go with the node.
func (f *fixture) ownedByNode() {
	f.Helper()
	var report v1alpha1.NodeReport
	f.must(f.Client().Get(f.Context(), client.ObjectKey{Name: f.node.Name}, &report))
	plan, err := f.plan(f.Context())
	f.must(err)
	for _, o := range []client.Object{&report, plan} {
		if owners := o.GetOwnerReferences(); len(owners) != 1 || owners[0].Kind != "Node" || owners[0].Name != f.node.Name {
			f.Errorf("%T is owned by %+v, want the Node", o, owners)
		}
	}
}
