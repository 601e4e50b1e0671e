package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// labelNode gives this machine's Node a label until the test's end.
func (f *fixture) labelNode(key, value string) {
	f.Helper()
	patch := func(ctx context.Context, value string) error {
		node := &corev1.Node{}
		node.Name = nodeName
		return f.client.Patch(ctx, node, client.RawPatch(types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, key, value)))
	}
	if err := patch(f.Context(), fmt.Sprintf("%q", value)); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := patch(context.WithoutCancel(f.Context()), "null"); err != nil {
			f.Error(err)
		}
	})
}

// vmPlan is what the plan says of a VM.
func (f *fixture) vmPlan(ctx context.Context, m *machine) (*v1alpha1.VMPlan, error) {
	plan, err := f.plan(ctx)
	if err != nil {
		return nil, err
	}
	for i, vm := range plan.Spec.VMs {
		if vm.Namespace == m.vmi.Namespace && vm.Name == m.vmi.Name {
			return &plan.Spec.VMs[i], nil
		}
	}
	return nil, fmt.Errorf("the plan does not name VM %s: %s: %s", m.vmi.Name, plan.Spec.Reason, plan.Spec.Message)
}

func TestVMWithDedicatedCPUsIsLeftAlone(t *testing.T) {
	f := newFixture(t)
	every := asTaskset(allCPUs(t))
	f.labelNode(kubevirtv1.DeprecatedCPUManager, "true") // up to KubeVirt 1.7
	f.labelNode(kubevirtv1.CPUManager, "true")
	vm := f.newVM("web", 2)
	vm.Spec.Template.Spec.Domain.CPU.DedicatedCPUPlacement = true
	vm.Spec.Template.Spec.Domain.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")}
	web := f.startVM(vm)
	f.profile("web")
	f.enforce()
	f.eventually("the plan says why it leaves the VM alone", func(ctx context.Context) error {
		planned, err := f.vmPlan(ctx, web)
		if err != nil {
			return err
		}
		if planned.Affinity != nil || len(planned.Reasons) != 1 || planned.Reasons[0].Reason != v1alpha1.ReasonDedicatedCPUs {
			return fmt.Errorf("it says %+v", planned)
		}
		return nil
	})
	f.eventually("the report counts the VM as dedicated", func(ctx context.Context) error {
		var report v1alpha1.NodeReport
		if err := f.client.Get(ctx, client.ObjectKey{Name: nodeName}, &report); err != nil {
			return err
		}
		if counts := report.Status.VMs; counts.Dedicated != 1 || counts.Pinned != 0 {
			return fmt.Errorf("it counts %+v", counts)
		}
		return nil
	})
	f.eventually("the plan is in force and acts on nothing", f.applied(0))
	if err := web.unrestricted(every)(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestPinsStayWithinACpusetThatChanges(t *testing.T) {
	f := newFixture(t)
	every := asTaskset(allCPUs(t))
	web := f.startVM(f.newVM("web", 1))
	profile := f.profile("web")
	f.enforce()
	_, other := f.pinnedTo(web)

	// As the kubelet does when it gives the CPU to a Guaranteed pod.
	if err := web.sandbox.SetCPUSet(other); err != nil {
		t.Fatal(err)
	}
	f.eventually("the vCPU is where the cpuset lets it", web.only(other))
	f.eventually("the plan moved the pin into the cpuset", func(ctx context.Context) error {
		planned, err := f.vmPlan(ctx, web)
		if err != nil {
			return err
		}
		if planned.Affinity == nil || len(planned.Affinity.VCPUs) != 1 || planned.Affinity.VCPUs[0].CPUs != other {
			return fmt.Errorf("it says %+v", planned)
		}
		return nil
	})
	f.eventually("the plan is in force", f.applied(1))

	if err := web.sandbox.SetCPUSet(allCPUs(t)); err != nil {
		t.Fatal(err)
	}
	f.pinnedTo(web)
	f.eventually("QEMU's main thread has its whole cache again", func(ctx context.Context) error {
		return web.mainUnrestricted(ctx, every)
	})

	f.delete(profile)
	f.eventually("all threads are unrestricted", web.unrestricted(every))
}
