// Package facts reads what commands of kubectl joulevirt need of the cluster: each kind once,
// side by side, whatever the number of objects.
package facts

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/access"
	"github.com/joulevirt/joulevirt/internal/cli/show"
)

// Lister reads lists, see access.Cluster.
type Lister interface {
	List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error
}

// Part is something to read.
type Part string

// The parts.
const (
	Policies Part = "EnergyPolicies"
	Ledgers  Part = "EnergyLedgers"
	Reports  Part = "NodeReports"
	Plans    Part = "NodePlans"
	Profiles Part = "VMNetworkProfiles"
	Nodes    Part = "Nodes"
	VMs      Part = "VirtualMachineInstances"
	KubeVirt Part = "KubeVirt"
)

// Facts are what was read. A part that could not be read is empty and has a gap.
type Facts struct {
	Now      time.Time
	Policies []v1alpha1.EnergyPolicy
	Ledgers  []v1alpha1.EnergyLedger
	Reports  []v1alpha1.NodeReport
	Plans    []v1alpha1.NodePlan
	Profiles []v1alpha1.VMNetworkProfile
	// Nodes and VMs have metadata only. They are nil unless they were read: a selector that
	// picks none leaves them empty.
	Nodes    []metav1.PartialObjectMetadata
	VMs      []metav1.PartialObjectMetadata
	KubeVirt []virtv1.KubeVirt

	failed map[Part]error
}

// Scope bounds what is read of namespaced kinds, and of nodes.
type Scope struct {
	// Namespace of profiles and VMs. Empty: all.
	Namespace string
	// VMs, Nodes and Profiles are selectors by label, as users write them. Empty: all.
	VMs, Nodes, Profiles client.ListOption
}

// Read reads parts. Only what makes everything else useless is an error: no answer at all, or
// credentials that nobody knows.
func Read(ctx context.Context, lister Lister, now time.Time, scope Scope, parts ...Part) (*Facts, error) {
	f := &Facts{Now: now, failed: map[Part]error{}}
	var wait sync.WaitGroup
	var mu sync.Mutex
	for _, part := range parts {
		wait.Go(func() {
			if err := f.read(ctx, lister, part, scope); err != nil {
				mu.Lock()
				f.failed[part] = err
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	for _, part := range parts {
		if err := f.failed[part]; access.IsFatal(err) {
			return nil, err
		}
	}
	return f, nil
}

func (f *Facts) read(ctx context.Context, lister Lister, part Part, scope Scope) error {
	in := []client.ListOption{client.InNamespace(scope.Namespace)}
	with := func(options []client.ListOption, selector client.ListOption) []client.ListOption {
		if selector != nil {
			options = append(slices.Clone(options), selector)
		}
		return options
	}
	switch part {
	case Policies:
		list := v1alpha1.EnergyPolicyList{}
		err := lister.List(ctx, &list)
		f.Policies = list.Items
		return err
	case Ledgers:
		list := v1alpha1.EnergyLedgerList{}
		err := lister.List(ctx, &list)
		f.Ledgers = list.Items
		return err
	case Reports:
		list := v1alpha1.NodeReportList{}
		err := lister.List(ctx, &list)
		f.Reports = list.Items
		return err
	case Plans:
		list := v1alpha1.NodePlanList{}
		err := lister.List(ctx, &list)
		f.Plans = list.Items
		return err
	case Profiles:
		list := v1alpha1.VMNetworkProfileList{}
		err := lister.List(ctx, &list, with(in, scope.Profiles)...)
		f.Profiles = list.Items
		return err
	case Nodes:
		list := access.Metadata(corev1.SchemeGroupVersion.WithKind("Node"))
		err := lister.List(ctx, list, with(nil, scope.Nodes)...)
		f.Nodes = present(list.Items, err)
		return err
	case VMs:
		list := access.Metadata(virtv1.VirtualMachineInstanceGroupVersionKind)
		err := lister.List(ctx, list, with(in, scope.VMs)...)
		f.VMs = present(list.Items, err)
		return err
	case KubeVirt:
		list := virtv1.KubeVirtList{}
		err := lister.List(ctx, &list)
		f.KubeVirt = list.Items
		return err
	default:
		return fmt.Errorf("part %q is not known", part)
	}
}

func present(items []metav1.PartialObjectMetadata, err error) []metav1.PartialObjectMetadata {
	if err != nil {
		return nil
	}
	return append([]metav1.PartialObjectMetadata{}, items...)
}

// Err says why a part could not be read. Nil: it could, or nobody asked.
func (f *Facts) Err(part Part) error { return f.failed[part] }

// Need returns the error of the first of some parts that could not be read.
func (f *Facts) Need(parts ...Part) error {
	for _, part := range parts {
		if err := f.failed[part]; err != nil {
			return err
		}
	}
	return nil
}

// Gaps tell of all parts that could not be read, in the order of their names.
func (f *Facts) Gaps() []show.Gap {
	var gaps []show.Gap
	for part, err := range f.failed {
		gaps = append(gaps, show.Gap{Of: string(part), Message: err.Error()})
	}
	slices.SortFunc(gaps, func(x, y show.Gap) int { return strings.Compare(x.Of, y.Of) })
	return gaps
}
