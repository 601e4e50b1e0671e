//go:build e2e

package e2e

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/env/node"
	"github.com/joulevirt/joulevirt/test/env/product"
)

// pins need a profile and a policy, follow vCPUs that are plugged in, and go with the profile.
func (f *fixture) pins() {
	web := f.web
	profile := f.pinProfile(web)
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
	if err := web.unrestricted(f.Context()); err != nil {
		f.Errorf("without a policy: %v", err)
	}

	policy := f.policy(v1alpha1.ModeEnforce, v1alpha1.LeverAffinity)
	f.eventually("each vCPU is bound to one CPU", web.pinned)
	f.eventually("the plan is in force", f.applied(1))
	if err := web.mainUnrestricted(f.Context()); err != nil {
		f.Error(err)
	}
	f.eventually("the profile reports that its VM is pinned", func(ctx context.Context) error {
		if err := f.Client().Get(ctx, client.ObjectKeyFromObject(profile), profile); err != nil {
			return err
		}
		if profile.Status.VMsInForce != 1 || len(profile.Status.Examples) != 1 {
			return fmt.Errorf("status is %+v", profile.Status)
		}
		return nil
	})
	f.ownedByNode()

	f.plugIn(web, 2)
	f.eventually("the vCPU that was plugged in is bound too", func(ctx context.Context) error {
		vcpus, err := web.vcpus(ctx)
		if err != nil || len(vcpus) != 2 {
			return fmt.Errorf("the vCPUs are %+v: want two; error %w", vcpus, err)
		}
		return web.pinned(ctx)
	})
	f.guestFailsAfterLever(web, policy)

	f.delete(profile)
	f.eventually("all threads are unrestricted", web.unrestricted)
	f.eventually("the plan acts on nothing", f.applied(0))
	f.undo(policy)
}

// migrates has a VM that is bound leave for another node, which binds it anew.
func (f *fixture) migrates() {
	vm := f.compute[0]
	second, err := f.AddNode(f.Context(), node.NodeOptions{})
	f.must(err)
	profile := f.pinProfile(vm)
	policy := f.policy(v1alpha1.ModeEnforce, v1alpha1.LeverAffinity)
	f.eventually("the vCPU is bound", vm.pinned)
	f.eventually("the plan is in force", f.applied(1))

	key := client.ObjectKeyFromObject(vm.vmi)
	_, err = f.Migrate(f.Context(), key)
	f.must(err)
	vm.qemu, err = second.QEMU(key)
	f.must(err)
	f.eventually("the vCPU is bound on the second node", vm.pinned)
	f.eventually("the second node's plan is in force", func(ctx context.Context) error {
		return product.ActsOn(ctx, f.Client(), second.Name, 1)
	})
	f.eventually("the first node's plan acts on nothing", f.applied(0))
	f.undo(profile, policy)
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
