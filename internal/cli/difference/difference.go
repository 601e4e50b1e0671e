// Package difference compares the plan of a node with what its agent read back, for each VM. It
// is a pure function of a NodePlan.
package difference

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/show"
	"github.com/joulevirt/joulevirt/internal/observe/leverstate"
)

// Step is how a lever of a VM changes.
type Step string

// The steps.
const (
	Adds    Step = "+"
	Changes Step = "~"
	Undoes  Step = "-"
	Stays   Step = "="
	None    Step = ""
)

// Change is one lever of one VM.
type Change struct {
	Namespace string         `json:"namespace"`
	Name      string         `json:"name"`
	Lever     v1alpha1.Lever `json:"lever"`
	// Step from Now to Planned. Empty: nothing is planned or in force.
	Step Step `json:"step"`
	// Now is what was read back, if the lever is in force.
	Now string `json:"now,omitempty"`
	// Planned is what is planned or recommended, if anything.
	Planned string              `json:"planned,omitempty"`
	State   v1alpha1.LeverState `json:"state"`
	Reason  string              `json:"reason"`
	Message string              `json:"message,omitempty"`
}

// PlanDifference is a view of a plan.
type PlanDifference struct {
	metav1.TypeMeta `json:",inline"`
	Node            string              `json:"node"`
	Policy          string              `json:"policy"`
	Mode            v1alpha1.PolicyMode `json:"mode"`
	Revision        string              `json:"revision"`
	// Applied is true if the agent has applied all of this plan.
	Applied bool `json:"applied"`
	// Apply is false if the plan is a recommendation, or everything is to be reverted.
	Apply   bool     `json:"apply"`
	Reason  string   `json:"reason"`
	Message string   `json:"message,omitempty"`
	Changes []Change `json:"changes"`
	// Steps counts the changes by their step.
	Steps map[Step]int `json:"steps"`

	all bool
}

// Of compares a plan with what its agent read back. With all, its tables also have what stays
// as it is, and where nothing is done.
func Of(nodePlan *v1alpha1.NodePlan, all bool) *PlanDifference {
	plan := &leverstate.Plan{NodePlan: nodePlan}
	out := &PlanDifference{
		TypeMeta: show.Kind("PlanDifference"), Node: plan.Name, Policy: plan.Spec.Policy, Mode: plan.Spec.Mode,
		Revision: plan.Spec.Revision, Applied: leverstate.IsApplied(nodePlan), Apply: plan.Spec.Apply,
		Reason: plan.Spec.Reason, Message: plan.Spec.Message, Changes: []Change{}, Steps: map[Step]int{}, all: all,
	}
	for i := range plan.Spec.VMs {
		vm := &plan.Spec.VMs[i]
		for _, lever := range leverstate.Levers() {
			state := leverstate.Of(lever)(plan, vm.PodUID)
			out.add(Change{
				Namespace: vm.Namespace, Name: vm.Name, Lever: lever, Planned: Planned(vm, lever), Now: InForce(plan.AppliedTo(vm.PodUID, lever)),
				State: state.State, Reason: state.Reason, Message: state.Message,
			}, vm)
		}
	}
	// VMs that the plan does not name any more are reverted.
	for i := range plan.Status.VMs {
		applied := &plan.Status.VMs[i]
		if now := InForce(applied); now != "" && plan.PlannedFor(applied.PodUID) == nil {
			out.add(Change{
				Namespace: applied.Namespace, Name: applied.Name, Lever: applied.Lever, Now: now, State: applied.State, Reason: applied.Reason, Message: applied.Message,
			}, nil)
		}
	}
	slices.SortStableFunc(out.Changes, func(x, y Change) int {
		return cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name))
	})
	return out
}

func (d *PlanDifference) add(c Change, vm *v1alpha1.VMPlan) {
	switch {
	case c.Planned == "" && c.Now == "":
		c.Step = None
	case c.Now == "":
		c.Step = Adds
	case c.Planned == "":
		c.Step = Undoes
	case !d.Apply:
		// The plan is not acted on, and what is in force is reverted.
		c.Step = Undoes
	case same(c, vm):
		c.Step = Stays
	default:
		c.Step = Changes
	}
	if c.Step != None {
		d.Steps[c.Step]++
	}
	d.Changes = append(d.Changes, c)
}

// same returns true if what is in force is what is planned. Slices, ceilings and turns are not
// reported in figures, and a window may be shortened by what the guest tolerates: there the state that
// the agent reports decides.
func same(c Change, vm *v1alpha1.VMPlan) bool {
	switch c.Lever {
	case v1alpha1.LeverAffinity:
		return c.Now == vcpus(vm.Affinity.VCPUs) || len(vm.Affinity.VCPUs) == 0
	default:
		return c.State == v1alpha1.LeverInForce
	}
}

// Planned formats what is planned for a lever. Empty: nothing.
func Planned(vm *v1alpha1.VMPlan, lever v1alpha1.Lever) string {
	switch {
	case lever == v1alpha1.LeverAffinity && vm.Affinity != nil:
		return affinity(vm.Affinity)
	case lever == v1alpha1.LeverSlice && vm.SliceMicroseconds != nil:
		return fmt.Sprintf("slice %dus", *vm.SliceMicroseconds)
	case lever == v1alpha1.LeverBuffering && vm.Buffering != nil:
		return buffering(vm.Buffering)
	case lever == v1alpha1.LeverShaping && vm.Shaping != nil:
		return shaping(vm.Shaping)
	default:
		return ""
	}
}

// InForce formats what an agent read back. Empty: the lever is not in force.
func InForce(applied *v1alpha1.VMApplied) string {
	if applied == nil || applied.State != v1alpha1.LeverInForce {
		return ""
	}
	switch {
	case applied.Lever == v1alpha1.LeverAffinity && len(applied.VCPUs) > 0:
		return vcpus(applied.VCPUs)
	case applied.Buffering != nil && applied.Buffering.WindowMicroseconds > 0:
		return fmt.Sprintf("window %dus", applied.Buffering.WindowMicroseconds)
	case applied.Buffering != nil:
		return "floods only"
	default:
		return "in force"
	}
}

// vcpus formats the CPUs of each vCPU, in the order of the vCPUs.
func vcpus(pins []v1alpha1.VCPUPin) string {
	pins = slices.SortedFunc(slices.Values(pins), func(x, y v1alpha1.VCPUPin) int { return cmp.Compare(x.VCPU, y.VCPU) })
	var words []string
	for _, pin := range pins {
		words = append(words, fmt.Sprintf("%d:%s", pin.VCPU, pin.CPUs))
	}
	return "vCPUs " + strings.Join(words, " ")
}

func affinity(a *v1alpha1.AffinityAction) string {
	var parts []string
	if len(a.VCPUs) > 0 {
		parts = append(parts, vcpus(a.VCPUs))
	}
	for _, thread := range []struct{ name, cpus string }{{"emulator", a.EmulatorCPUs}, {"io", a.IOThreadCPUs}, {"vhost", a.VhostCPUs}} {
		if thread.cpus != "" {
			parts = append(parts, thread.name+" "+thread.cpus)
		}
	}
	return strings.Join(parts, ", ")
}

func buffering(b *v1alpha1.BufferingAction) string {
	var parts []string
	if b.WindowMicroseconds != nil {
		parts = append(parts, fmt.Sprintf("window %dus", *b.WindowMicroseconds))
	}
	if b.FloodWindowMicroseconds != nil {
		parts = append(parts, fmt.Sprintf("in floods %dus", *b.FloodWindowMicroseconds))
	}
	return strings.Join(parts, ", ")
}

func shaping(s *v1alpha1.ShapingAction) string {
	var parts []string
	if s.CeilingBitsPerSecond != nil {
		parts = append(parts, fmt.Sprintf("ceiling %d bit/s", *s.CeilingBitsPerSecond))
	}
	if t := s.Turn; t != nil {
		parts = append(parts, fmt.Sprintf("turn of %dms each %dms", t.LengthMilliseconds, t.PeriodMilliseconds))
	}
	return strings.Join(parts, ", ")
}

// Tables shows the plan, and a row for each change.
func (d *PlanDifference) Tables() []show.Table {
	plan := show.Table{Columns: show.Columns("NODE", "POLICY", "MODE", "REVISION", "APPLIED", "APPLY", "REASON", "ADDS", "CHANGES", "UNDOES", "STAYS", "+MESSAGE")}
	plan.Rows = [][]string{{
		d.Node, d.Policy, string(d.Mode), d.Revision, fmt.Sprint(d.Applied), fmt.Sprint(d.Apply), d.Reason,
		fmt.Sprint(d.Steps[Adds]), fmt.Sprint(d.Steps[Changes]), fmt.Sprint(d.Steps[Undoes]), fmt.Sprint(d.Steps[Stays]), show.Or(d.Message),
	}}
	changes := show.Table{Columns: show.Columns("", "NAMESPACE", "VM", "LEVER", "NOW", "PLANNED", "STATE", "REASON", "+MESSAGE")}
	for i := range d.Changes {
		c := &d.Changes[i]
		if !d.all && (c.Step == Stays || c.Step == None) {
			continue
		}
		changes.Rows = append(changes.Rows, []string{
			string(c.Step), c.Namespace, c.Name, string(c.Lever), show.Or(c.Now), show.Or(c.Planned), string(c.State), c.Reason, show.Or(c.Message),
		})
	}
	return []show.Table{plan, changes}
}
