package profile

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/controllers/statuses"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/tuning"
	"github.com/joulevirt/joulevirt/internal/observe/vmstate"
	"github.com/joulevirt/joulevirt/internal/planner/buffering"
)

// Floods tell which VMs are flooded with small packets. Package flood has them.
type Floods interface {
	Of(podUID string) vmstate.Flood
	// Awaited is true while too little was heard since the manager leads to say of any VM
	// that nothing is known of it.
	Awaited() bool
}

// wishesOf is what a profile wants of the buffering of its VMs' packets.
func wishesOf(profile observe.Profile) tuning.VM {
	var vm model.VM
	vm.TrafficClass = profile.Spec.TrafficClass
	observe.BufferingWishes(&vm, &profile.Spec)
	return tuning.VM{LeastRate: buffering.LeastRate(&vm), MaxDrops: vm.MaxDrops, KeepThroughput: vm.KeepThroughput}
}

// addFlood counts one VM. reported is true when the profile's status names flooded VMs, which
// it may do for an earlier manager: it is then to be made anew once that is no reason any
// more.
func (s *profileTally) addFlood(podUID string, floods Floods, reported bool) {
	state := floods.Of(podUID)
	if state.Watched {
		s.watched++
	}
	if state.Flood != nil {
		s.flooded++
	}
	if state != (vmstate.Flood{}) || reported && !floods.Awaited() {
		hash := fnv.New64a()
		_, _ = fmt.Fprintf(hash, "flood %s %t %t %d", podUID, state.Watched, state.Flood != nil, state.Since.Unix())
		s.figure += hash.Sum64()
	}
}

// floodTally collects a profile's VMs that are flooded.
type floodTally struct {
	// before is what the status said, awaited see Floods.
	before  []v1alpha1.DisturbedVM
	awaited bool
	watched int
	vms     []v1alpha1.DisturbedVM
}

// add takes in one VM. A flood of which the status reported before keeps its time and its
// words: figures change with each round, and each change would be a write. So does one of
// which an earlier manager reported, while the VM's agent was not heard yet.
func (t *floodTally) add(name, node string, state vmstate.Flood) {
	if state.Watched {
		t.watched++
	}
	at := slices.IndexFunc(t.before, func(was v1alpha1.DisturbedVM) bool { return isFlooded(was, name, node) })
	switch {
	case at >= 0 && (state.Flood != nil || t.awaited && state == (vmstate.Flood{})):
		t.vms = append(t.vms, t.before[at])
	case state.Flood != nil:
		t.vms = append(t.vms, v1alpha1.DisturbedVM{
			Name: name, Node: node, Reason: v1alpha1.CauseFlood, Since: metav1.NewTime(state.Since).Rfc3339Copy(), Message: floodMessage(state.Flood),
		})
	}
}

// status returns the VMs that have been flooded for longest.
func (t *floodTally) status() []v1alpha1.DisturbedVM {
	slices.SortFunc(t.vms, func(x, y v1alpha1.DisturbedVM) int {
		return cmp.Or(x.Since.Compare(y.Since.Time), cmp.Compare(x.Name, y.Name))
	})
	return t.vms[:min(len(t.vms), maxDisturbedVMs)]
}

// isFlooded reports whether an entry of a status is of a VM that is flooded.
func isFlooded(vm v1alpha1.DisturbedVM, name, node string) bool {
	return vm.Reason == v1alpha1.CauseFlood && vm.Name == name && vm.Node == node
}

// floodMessage names the evidence.
func floodMessage(f *model.Flood) string {
	sources := fmt.Sprintf("about %d addresses", f.Sources)
	if f.Sources == 1 {
		sources = "one address"
	}
	return statuses.Cut(fmt.Sprintf("%.0f packets/s towards it of %.0f bytes on average, %.0f/s before, %.0f %% of them SYN, from %s; it talks back to %.1f %% of them",
		float64(f.SegmentsPerSecond), f.MeanBytes, float64(f.UsualPerSecond), 100*f.SYNShare, sources, 100*f.TalkShare), maxDisturbedMessage)
}

// condition reports whether any VM is flooded. Its words have no figures that change while
// the same VMs are.
func (t *floodTally) condition(wishes *v1alpha1.BufferingPreferences) metav1.Condition {
	out := metav1.Condition{Type: v1alpha1.ConditionUnderFlood, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoFlood}
	switch {
	case len(t.vms) > 0:
		out.Status, out.Reason = metav1.ConditionTrue, v1alpha1.ReasonSmallPacketFlood
		what := "their packets are held for up to 500us meanwhile"
		if wishes.FloodDefence == v1alpha1.FloodDefenceForbid {
			what = "spec.buffering.floodDefence forbids to hold their packets"
		}
		out.Message = fmt.Sprintf("%d VMs are flooded with small packets, see status.disturbedVMs; %s", len(t.vms), what)
	case t.watched > 0:
		out.Message = "no VM that is watched is flooded with small packets"
	default:
		out.Status, out.Reason = metav1.ConditionUnknown, v1alpha1.ReasonNotWatched
		out.Message = "no agent watches the VMs for floods: lever Buffering does, where the EnergyPolicy of a VM's node has it, see status.levers"
	}
	return out
}

// Reasons of events on VMIs.
const (
	reasonUnderFlood = "UnderFlood"
	reasonFloodEnded = "FloodEnded"
)

// reportFlooded sends an event about each VM that the profile's status names as flooded and
// did not before, and about each whose flood is known to have ended. A flood lasts for a
// settle time at least, and the status names 20 VMs at most: that bounds the events.
func (r *Reconciler) reportFlooded(profile *v1alpha1.VMNetworkProfile, before []v1alpha1.DisturbedVM, vmis []virtv1.VirtualMachineInstance) {
	among := func(list []v1alpha1.DisturbedVM, vm v1alpha1.DisturbedVM) bool {
		return slices.ContainsFunc(list, func(o v1alpha1.DisturbedVM) bool { return isFlooded(o, vm.Name, vm.Node) })
	}
	for _, vm := range profile.Status.DisturbedVMs {
		// Of more than 20 some are named when others recovered: that is no news.
		vmi := vmiNamed(vmis, vm.Name)
		if vm.Reason == v1alpha1.CauseFlood && vmi != nil && !among(before, vm) && r.Clock.Since(vm.Since.Time) <= NewsOfDisturbance {
			r.Recorder.Eventf(vmi, nil, corev1.EventTypeWarning, reasonUnderFlood, "Detect", "on node %s: %s", vm.Node, vm.Message)
		}
	}
	for _, vm := range before {
		vmi := vmiNamed(vmis, vm.Name)
		if vm.Reason != v1alpha1.CauseFlood || vmi == nil || among(profile.Status.DisturbedVMs, vm) {
			continue
		}
		pod, node := objects.LauncherOf(vmi)
		if state := r.Floods.Of(string(pod)); node == vm.Node && state.Watched && state.Flood == nil {
			r.Recorder.Eventf(vmi, nil, corev1.EventTypeNormal, reasonFloodEnded, "Detect",
				"on node %s: the flood of small packets that began at %s is over", vm.Node, vm.Since.UTC().Format("15:04:05 MST"))
		}
	}
}

func vmiNamed(vmis []virtv1.VirtualMachineInstance, name string) *virtv1.VirtualMachineInstance {
	at := slices.IndexFunc(vmis, func(vmi virtv1.VirtualMachineInstance) bool { return vmi.Name == name })
	if at < 0 {
		return nil
	}
	return &vmis[at]
}
