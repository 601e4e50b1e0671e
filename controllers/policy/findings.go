package policy

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/statuses"
	"github.com/joulevirt/joulevirt/internal/findings"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// The API's bounds of a finding.
const maxFindingObjects, maxFindingText = 10, 512

// vmsOfNodes are running VMs, and what profiles say of some, by their node.
type vmsOfNodes struct {
	vmis  map[string][]*virtv1.VirtualMachineInstance
	found map[string][]findings.Found
	idle  *findings.Idle
}

func vmsByNode(vmis []virtv1.VirtualMachineInstance, profiles []v1alpha1.VMNetworkProfile, idle *findings.Idle) vmsOfNodes {
	out := vmsOfNodes{map[string][]*virtv1.VirtualMachineInstance{}, map[string][]findings.Found{}, idle}
	for i := range vmis {
		if vmi := &vmis[i]; vmi.Status.Phase == virtv1.Running {
			out.vmis[vmi.Status.NodeName] = append(out.vmis[vmi.Status.NodeName], vmi)
		}
	}
	for i := range profiles {
		for node, of := range findings.OfProfile(&profiles[i]) {
			out.found[node] = append(out.found[node], of...)
		}
	}
	return out
}

// of returns what was found of the VMs of a node.
func (v *vmsOfNodes) of(node *energyOfNode, now time.Time) []findings.Found {
	found := slices.Clone(v.found[node.name])
	heard := map[string]*model.VMRates{}
	if node.rates != nil {
		for i := range node.rates.VMs {
			vm := &node.rates.VMs[i]
			heard[vm.Namespace+"/"+vm.Name] = vm
		}
	}
	for _, vmi := range v.vmis[node.name] {
		var idle time.Duration
		vm := heard[vmi.Namespace+"/"+vmi.Name]
		if vm != nil {
			idle = v.idle.Look(vm, now)
		}
		found = append(found, findings.OfVM(vmi, node.reported(), vm, idle)...)
	}
	return found
}

// addFindings adds what was found of a node and its VMs.
func (t *policyTally) addFindings(node *energyOfNode, ofVMs []findings.Found) {
	n := findings.Node{Name: node.name, Report: node.reported()}
	if p := node.choice.Power; p != nil {
		n.Watts, n.Basis = &p.Watts, v1alpha1.BasisModelled
		if node.choice.Metered {
			n.Basis = v1alpha1.BasisMeasured
		}
	}
	t.found = append(t.found, findings.OfNode(n)...)
	t.found = append(t.found, ofVMs...)
}

// rankFindings makes one finding of each reason, the costliest first: by watts, then by CPU time,
// then by the number of objects.
func rankFindings(found []findings.Found) []v1alpha1.Finding {
	// In two digits, so that noise does not change the order.
	watts := func(f findings.Found) int64 { return statuses.TwoDigits(float64(ptr.Deref(f.Watts, 0))) }
	found = slices.Clone(found)
	slices.SortStableFunc(found, func(x, y findings.Found) int {
		return cmp.Or(cmp.Compare(watts(y), watts(x)), cmp.Compare(y.LostCores, x.LostCores), strings.Compare(x.Object, y.Object))
	})
	type sum struct {
		v1alpha1.Finding
		watts units.Watts
		cores units.Cores
	}
	var sums []*sum
	byReason := map[string]*sum{}
	for _, f := range found {
		s := byReason[f.Reason]
		if s == nil {
			s = &sum{Finding: v1alpha1.Finding{
				Reason: f.Reason, Message: statuses.Cut(f.Message, maxFindingText), Remedy: statuses.Cut(f.Remedy, maxFindingText), ChangedBy: f.ChangedBy,
			}, watts: -1}
			byReason[f.Reason], sums = s, append(sums, s)
		}
		if s.Count++; s.Count <= maxFindingObjects {
			s.Objects = append(s.Objects, f.Object)
		}
		if f.Watts != nil {
			s.watts = max(0, s.watts) + *f.Watts
			if s.Basis != v1alpha1.BasisModelled {
				s.Basis = f.Basis
			}
		}
		s.cores += f.LostCores
	}
	slices.SortStableFunc(sums, func(x, y *sum) int {
		return cmp.Or(cmp.Compare(y.watts, x.watts), cmp.Compare(y.cores, x.cores), cmp.Compare(y.Count, x.Count), strings.Compare(x.Reason, y.Reason))
	})
	var out []v1alpha1.Finding
	for _, s := range sums {
		if s.watts >= 0 {
			s.Watts = ptr.To(statuses.TwoDigits(float64(s.watts)))
		}
		if s.cores > 0 {
			s.LostCores, _ = statuses.Decimal(float64(s.cores), 2)
		}
		out = append(out, s.Finding)
	}
	return out
}
