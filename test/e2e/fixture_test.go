//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/env/node"
	"github.com/joulevirt/joulevirt/test/env/product"
)

const (
	shop = "shop" // namespace of the VMs
	// changeTimeout covers a change's way through manager and agent. What is
	// tested is that it arrives, not how fast.
	changeTimeout = 10 * time.Minute
)

// fixture is what a story sees of the node.
type fixture struct {
	*testing.T
	*node.Environment
	node *node.Node
	// web has little to do, and compute may be busy.
	web     *machine
	compute []*machine
}

func (f *fixture) machines() []*machine { return append([]*machine{f.web}, f.compute...) }

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// create creates an object and deletes it at the story's end.
func (f *fixture) create(o client.Object) {
	f.Helper()
	f.must(f.Client().Create(f.Context(), o))
	f.Cleanup(func() { f.delete(o) })
}

func (f *fixture) delete(o client.Object) {
	f.Helper()
	if err := client.IgnoreNotFound(f.Client().Delete(context.WithoutCancel(f.Context()), o)); err != nil {
		f.Error(err)
	}
}

// eventually waits until a condition holds.
func (f *fixture) eventually(what string, condition func(context.Context) error) {
	f.Helper()
	began := time.Now()
	if err := f.WaitFor(f.Context(), changeTimeout, what, condition); err != nil {
		f.Log(product.State(f.Context(), f.Environment))
		f.Fatal(err)
	}
	f.Logf("%s: after %v", what, time.Since(began).Round(100*time.Millisecond))
}

// machine is a VM of the node.
type machine struct {
	name string
	vmi  *kubevirtv1.VirtualMachineInstance
	qemu int
	// allCPUs is the mask of a thread that may run anywhere.
	allCPUs string
}

// start starts a VM and waits until its guest answers.
func (f *fixture) start(ctx context.Context, m *machine) error {
	var err error
	m.vmi, err = f.StartVM(ctx, f.NewVM(shop, m.name, func(t *kubevirtv1.VirtualMachineInstanceTemplateSpec) {
		// Room for a second vCPU, as KubeVirt leaves each VM that says how many sockets it has.
		t.Spec.Domain.CPU = &kubevirtv1.CPU{Cores: 1, Sockets: 1, MaxSockets: 2}
		t.Spec.Domain.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("300m")}
		t.Spec.ReadinessProbe = &kubevirtv1.Probe{
			Handler: kubevirtv1.Handler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(80)}},
			// A guest that has to wait for a CPU is slow, and as ready as before.
			PeriodSeconds: 1, FailureThreshold: 1, TimeoutSeconds: 30,
		}
	}))
	if err != nil {
		return err
	}
	m.qemu, err = f.node.QEMU(client.ObjectKeyFromObject(m.vmi))
	return err
}

// post asks a guest to do something.
func (f *fixture) post(m *machine, path string) {
	f.Helper()
	ctx := context.WithoutCancel(f.Context())
	address, err := f.Address(ctx, m.vmi)
	f.must(err)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+path, http.NoBody)
	f.must(err)
	response, err := http.DefaultClient.Do(request)
	f.must(err)
	_ = response.Body.Close()
	if response.StatusCode != http.StatusNoContent {
		f.Fatalf("the guest of VM %s answers %s to %s", m.name, response.Status, path)
	}
}

// burn keeps a vCPU of a guest busy for a time. 0 ends it.
func (f *fixture) burn(m *machine, seconds int) {
	f.Helper()
	f.post(m, fmt.Sprintf("/burn?workers=%d&seconds=%d", min(1, seconds), seconds))
}

// profile is of one VM.
func (f *fixture) profile(m *machine, class v1alpha1.TrafficClass, levels v1alpha1.ServiceLevels) *v1alpha1.VMNetworkProfile {
	f.Helper()
	profile := &v1alpha1.VMNetworkProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: m.name},
		Spec: v1alpha1.VMNetworkProfileSpec{
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": m.name}}, TrafficClass: class, ServiceLevels: levels,
		},
	}
	f.create(profile)
	return profile
}

// policy allows levers on the node.
func (f *fixture) policy(mode v1alpha1.PolicyMode, levers ...v1alpha1.Lever) *v1alpha1.EnergyPolicy {
	f.Helper()
	policy := &v1alpha1.EnergyPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "levers"},
		Spec: v1alpha1.EnergyPolicySpec{
			Mode: mode, Levers: levers,
			Energy: v1alpha1.EnergySettings{AllowModelled: true},
			// Whatever meter the machine has, levers are to act at once.
			Verification: v1alpha1.Verification{Trials: v1alpha1.TrialsDisabled, HoldBackPercent: ptr.To[int32](0)},
			// The machine also runs the whole control plane: what it leaves must
			// not prevent pins of an idle guest.
			Guardrails: v1alpha1.Guardrails{MaxCoreUtilizationPercent: 100},
		},
	}
	f.create(policy)
	return policy
}

// plan reads the node's plan.
func (f *fixture) plan(ctx context.Context) (*v1alpha1.NodePlan, error) {
	return product.Plan(ctx, f.Client(), f.node.Name)
}

// applied is satisfied when the agent reports that the current plan is in force
// and acts on so many VMs.
func (f *fixture) applied(vms int) func(context.Context) error {
	return func(ctx context.Context) error { return product.ActsOn(ctx, f.Client(), f.node.Name, vms) }
}

// noPlan is satisfied when the node has no plan.
func (f *fixture) noPlan(ctx context.Context) error {
	plan, err := f.plan(ctx)
	if err == nil {
		err = fmt.Errorf("there is one of policy %s", plan.Spec.Policy)
	}
	return client.IgnoreNotFound(err)
}

// undo deletes what a story made and waits until nothing of it acts.
func (f *fixture) undo(all ...client.Object) {
	f.Helper()
	for _, o := range all {
		f.delete(o)
	}
	f.eventually("there is no plan", f.noPlan)
	f.eventually("nothing is bound, nothing is sliced", f.untouched)
}

// untouched is satisfied when no thread of any VM is bound or has a slice.
func (f *fixture) untouched(ctx context.Context) error {
	var problems []error
	for _, m := range f.machines() {
		problems = append(problems, m.unsliced(ctx), m.unrestricted(ctx))
	}
	return errors.Join(problems...)
}
