// Package facts reads what commands of kubectl joulevirt need of the cluster: each kind once,
// side by side, whatever the number of objects.
package facts

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// Part is something to read.
type Part string

// The parts.
const (
	Policies Part = "EnergyPolicies"
	Reports  Part = "NodeReports"
	Plans    Part = "NodePlans"
	Moves    Part = "PlacementPlans"
	Profiles Part = "VMNetworkProfiles"
	Hybrids  Part = "HybridWorkloads"
	Nodes    Part = "Nodes"
	VMs      Part = "VirtualMachineInstances"
	KubeVirt Part = "KubeVirt"
	// Services, DaemonSets and the Prometheus Operator's servers and monitors of pods.
	Services     Part = "Services"
	DaemonSets   Part = "DaemonSets"
	Prometheuses Part = "Prometheuses"
	PodMonitors  Part = "PodMonitors"
)

// Facts are what was read. A part that could not be read is empty and has a gap.
type Facts struct {
	Now      time.Time
	Policies []v1alpha1.EnergyPolicy
	Reports  []v1alpha1.NodeReport
	Plans    []v1alpha1.NodePlan
	Moves    []v1alpha1.PlacementPlan
	Profiles []v1alpha1.VMNetworkProfile
	Hybrids  []v1alpha1.HybridWorkload
	// Nodes and VMs have metadata only. They are nil unless they were read: a selector that
	// selects nothing leaves them empty.
	Nodes    []metav1.PartialObjectMetadata
	VMs      []metav1.PartialObjectMetadata
	KubeVirt []virtv1.KubeVirt

	Services   []corev1.Service
	DaemonSets []appsv1.DaemonSet
	// Prometheuses and PodMonitors have metadata only.
	Prometheuses, PodMonitors []metav1.PartialObjectMetadata

	errs map[Part]error
}

// Scope bounds what is read of namespaced kinds, and of nodes.
type Scope struct {
	// Namespace of profiles, HybridWorkloads and VMs. Empty: all.
	Namespace string
	// Selector by label of the objects of part Of: VMs, nodes or profiles. Nil: all.
	Selector client.ListOption
	Of       Part
}

// Read reads parts. It fails only if the API server does not answer or does not accept the
// credentials.
func Read(ctx context.Context, reader Reader, now time.Time, scope Scope, parts ...Part) (*Facts, error) {
	f := &Facts{Now: now, errs: map[Part]error{}}
	var wait sync.WaitGroup
	var mu sync.Mutex
	for _, part := range parts {
		wait.Go(func() {
			if err := f.read(ctx, reader, part, scope); err != nil {
				mu.Lock()
				f.errs[part] = err
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	for _, part := range parts {
		if err := f.errs[part]; access.IsFatal(err) {
			return nil, err
		}
	}
	return f, nil
}

func (f *Facts) read(ctx context.Context, reader Reader, part Part, scope Scope) error {
	selected := []client.ListOption{}
	if scope.Selector != nil && part == scope.Of {
		selected = append(selected, scope.Selector)
	}
	within := append(slices.Clone(selected), client.InNamespace(scope.Namespace))
	metadata := func(kind schema.GroupVersionKind, options []client.ListOption) ([]metav1.PartialObjectMetadata, error) {
		list := access.Metadata(kind)
		if err := reader.List(ctx, list, options...); err != nil {
			return nil, err
		}
		return append([]metav1.PartialObjectMetadata{}, list.Items...), nil
	}
	var err error
	switch part {
	case Policies:
		list := v1alpha1.EnergyPolicyList{}
		err = reader.List(ctx, &list)
		f.Policies = list.Items
	case Reports:
		list := v1alpha1.NodeReportList{}
		err = reader.List(ctx, &list)
		f.Reports = list.Items
	case Plans:
		list := v1alpha1.NodePlanList{}
		err = reader.List(ctx, &list)
		f.Plans = list.Items
	case Moves:
		list := v1alpha1.PlacementPlanList{}
		err = reader.List(ctx, &list)
		f.Moves = list.Items
	case Profiles:
		list := v1alpha1.VMNetworkProfileList{}
		err = reader.List(ctx, &list, within...)
		f.Profiles = list.Items
	case Hybrids:
		list := v1alpha1.HybridWorkloadList{}
		err = reader.List(ctx, &list, client.InNamespace(scope.Namespace))
		f.Hybrids = list.Items
	case Nodes:
		f.Nodes, err = metadata(corev1.SchemeGroupVersion.WithKind("Node"), selected)
	case VMs:
		f.VMs, err = metadata(virtv1.VirtualMachineInstanceGroupVersionKind, within)
	case KubeVirt:
		list := virtv1.KubeVirtList{}
		err = reader.List(ctx, &list)
		f.KubeVirt = list.Items
	case Services:
		list := corev1.ServiceList{}
		err = reader.List(ctx, &list)
		f.Services = list.Items
	case DaemonSets:
		list := appsv1.DaemonSetList{}
		err = reader.List(ctx, &list)
		f.DaemonSets = list.Items
	case Prometheuses:
		f.Prometheuses, err = metadata(access.Prometheus(), nil)
	case PodMonitors:
		f.PodMonitors, err = metadata(access.PodMonitor(), nil)
	}
	return err
}

// Err says why a part could not be read. Nil: it could, or was not requested.
func (f *Facts) Err(part Part) error { return f.errs[part] }

// Need returns the error of the first of some parts that could not be read.
func (f *Facts) Need(parts ...Part) error {
	for _, part := range parts {
		if err := f.errs[part]; err != nil {
			return err
		}
	}
	return nil
}

// Gaps lists all parts that could not be read, in the order of their names.
func (f *Facts) Gaps() []show.Gap {
	var gaps []show.Gap
	for part, err := range f.errs {
		gaps = append(gaps, show.Gap{Of: string(part), Message: err.Error()})
	}
	slices.SortFunc(gaps, func(x, y show.Gap) int { return strings.Compare(x.Of, y.Of) })
	return gaps
}

// Node is a node with its report, its plan, and the policy of that with its moves. Nil: it does not exist, or
// could not be read, as Gaps say.
type Node struct {
	Name   string
	Node   *metav1.PartialObjectMetadata
	Report *v1alpha1.NodeReport
	Plan   *v1alpha1.NodePlan
	Policy *v1alpha1.EnergyPolicy
	// Moves are those of the policy.
	Moves *v1alpha1.PlacementPlan
	Gaps  []show.Gap
}

// ReadNode reads the objects of one node. It fails as Read does.
func ReadNode(ctx context.Context, reader Reader, name string) (*Node, error) {
	out := &Node{Name: name}
	node := &metav1.PartialObjectMetadata{}
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	report, plan, policy, moves := &v1alpha1.NodeReport{}, &v1alpha1.NodePlan{}, &v1alpha1.EnergyPolicy{}, &v1alpha1.PlacementPlan{}
	for _, part := range []struct {
		of    string
		named func() string
		into  client.Object
		store func()
	}{
		{"NodePlan", func() string { return name }, plan, func() { out.Plan = plan }},
		{"EnergyPolicy", func() string { return plan.Spec.Policy }, policy, func() { out.Policy = policy }},
		{"PlacementPlan", func() string { return plan.Spec.Policy }, moves, func() { out.Moves = moves }},
		{"NodeReport", func() string { return name }, report, func() { out.Report = report }},
		{"Node", func() string { return name }, node, func() { out.Node = node }},
	} {
		if part.named() == "" {
			continue
		}
		err := reader.Get(ctx, "", part.named(), part.into)
		switch {
		case err == nil:
			part.store()
		case access.IsFatal(err):
			return nil, err
		case !access.Is(err, access.NotFound):
			out.Gaps = append(out.Gaps, show.Gap{Of: part.of, Message: err.Error()})
		}
	}
	return out, nil
}

// HasGap returns true if a kind could not be read.
func (n *Node) HasGap(kind string) bool {
	return slices.ContainsFunc(n.Gaps, func(gap show.Gap) bool { return gap.Of == kind })
}
