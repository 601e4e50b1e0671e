package explain

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/access"
	"github.com/joulevirt/joulevirt/internal/cli/show"
)

// Reader reads objects, see access.Cluster.
type Reader interface {
	Get(ctx context.Context, namespace, name string, into client.Object) error
	List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error
}

// Meter tells of the energy of a node that a policy governs, and of a VM on it, and what keeps
// it from telling. A VM without a name is none.
type Meter func(ctx context.Context, policy *v1alpha1.EnergyPolicy, node string, vm types.NamespacedName) (Energy, []show.Gap)

// reading gathers what can be read. What cannot be is a gap, as far as the rest makes sense
// without.
type reading struct {
	reader Reader
	// meter is nil for who does not ask.
	meter Meter
	gaps  []show.Gap
	fatal error
}

// get reads an object without a namespace and tells whether it is there.
func (r *reading) get(ctx context.Context, of, name string, into client.Object) bool {
	if r.fatal != nil {
		return false
	}
	err := r.reader.Get(ctx, "", name, into)
	var none *access.NotFound
	switch {
	case err == nil:
		return true
	case errors.As(err, &none):
		return false
	case access.IsFatal(err):
		r.fatal = err
	default:
		r.gaps = append(r.gaps, show.Gap{Of: of, Message: err.Error()})
	}
	return false
}

// ReadVM reads a VM, its node's plan and what both were made of, and explains them.
func ReadVM(ctx context.Context, reader Reader, meter Meter, vm types.NamespacedName, now time.Time) (*Explanation, error) {
	r := &reading{reader: reader, meter: meter}
	namespace, name := vm.Namespace, vm.Name
	in := VMInput{VMI: &virtv1.VirtualMachineInstance{}}
	if err := reader.Get(ctx, namespace, name, in.VMI); err != nil {
		var none *access.NotFound
		if errors.As(err, &none) {
			return nil, fmt.Errorf("%w: VirtualMachineInstances are running VMs; name another namespace by -n, or see kubectl get vmi -A", err)
		}
		return nil, err
	}
	var profiles v1alpha1.VMNetworkProfileList
	if err := reader.List(ctx, &profiles, client.InNamespace(namespace)); err != nil {
		r.gaps = append(r.gaps, show.Gap{Of: "VMNetworkProfile", Message: err.Error()})
	}
	in.Profiles = profiles.Items
	if node := in.VMI.Status.NodeName; node != "" {
		of := r.node(ctx, node, vm)
		in.Plan, in.Policy, in.Report, in.Node, in.Energy = of.Plan, of.Policy, of.Report, of.Node, of.Energy
	}
	if r.fatal != nil {
		return nil, r.fatal
	}
	in.Gaps = r.gaps
	return VM(in, now), nil
}

// ReadNode reads a node's plan and what it was made of, and explains them.
func ReadNode(ctx context.Context, reader Reader, meter Meter, name string, now time.Time) (*Explanation, error) {
	r := &reading{reader: reader, meter: meter}
	in := r.node(ctx, name, types.NamespacedName{})
	if r.fatal != nil {
		return nil, r.fatal
	}
	if in.Node == nil && in.Report == nil && in.Plan == nil && len(r.gaps) == 0 {
		return nil, fmt.Errorf("%w: see kubectl get nodes", &access.NotFound{Kind: "node", Name: name})
	}
	in.Gaps = r.gaps
	return Node(in, now), nil
}

// ReadGroup reads a profile with a group, and explains it.
func ReadGroup(ctx context.Context, reader Reader, namespace, name string, now time.Time) (*Explanation, error) {
	r := &reading{reader: reader}
	profile := &v1alpha1.VMNetworkProfile{}
	if err := reader.Get(ctx, namespace, name, profile); err != nil {
		return nil, err
	}
	var policy *v1alpha1.EnergyPolicy
	if t := profile.Status.Traffic; t != nil {
		for _, share := range t.Shares {
			if share.Node != "" {
				policy = r.policy(ctx, r.plan(ctx, share.Node))
				break
			}
		}
	}
	if r.fatal != nil {
		return nil, r.fatal
	}
	return Group(profile, policy, r.gaps, now), nil
}

func (r *reading) node(ctx context.Context, name string, vm types.NamespacedName) NodeInput {
	in := NodeInput{Name: name, Plan: r.plan(ctx, name)}
	in.Policy = r.policy(ctx, in.Plan)
	report := &v1alpha1.NodeReport{}
	if r.get(ctx, "NodeReport", name, report) {
		in.Report = report
	}
	node := &metav1.PartialObjectMetadata{}
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	if r.get(ctx, "Node", name, node) {
		in.Node = node
	}
	if in.Policy != nil && r.meter != nil && r.fatal == nil {
		energy, gaps := r.meter(ctx, in.Policy, name, vm)
		in.Energy, r.gaps = energy, append(r.gaps, gaps...)
	}
	return in
}

func (r *reading) plan(ctx context.Context, node string) *v1alpha1.NodePlan {
	plan := &v1alpha1.NodePlan{}
	if !r.get(ctx, "NodePlan", node, plan) {
		return nil
	}
	return plan
}

func (r *reading) policy(ctx context.Context, plan *v1alpha1.NodePlan) *v1alpha1.EnergyPolicy {
	policy := &v1alpha1.EnergyPolicy{}
	if plan == nil || !r.get(ctx, "EnergyPolicy", plan.Spec.Policy, policy) {
		return nil
	}
	return policy
}
