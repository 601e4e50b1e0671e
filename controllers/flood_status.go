package controllers

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/flood"
	"github.com/joulevirt/joulevirt/internal/observe/tuning"
)

// The API's bounds.
const (
	maxFloodedVMs     = 20
	maxFloodedMessage = 512
)

// Floods tell which VMs are flooded with small packets. Package flood has them.
type Floods interface {
	Of(podUID string) flood.State
	// Awaited is true while too little was heard since the manager leads to say of any VM
	// that nothing is known of it.
	Awaited() bool
}

// wishesOf is what a profile wants of the buffering of its VMs' packets.
func wishesOf(profile observe.Profile) tuning.VM {
	var vm model.VM
	observe.BufferingWishes(&vm, &profile.Spec)
	return tuning.VM{
		Profile:   types.NamespacedName{Namespace: profile.Namespace, Name: profile.Name},
		OnPackets: vm.OnPackets, MaxDrops: vm.MaxDrops, KeepThroughput: vm.KeepThroughput,
	}
}

// addFlood counts one VM. told is true when the profile's status names flooded VMs, which
// it may do for an earlier manager: it is then to be made anew once that is no reason any
// more.
func (s *profileSight) addFlood(podUID string, floods Floods, told bool) {
	state := floods.Of(podUID)
	if state.Watched {
		s.watched++
	}
	if state.Flood != nil {
		s.flooded++
	}
	if state != (flood.State{}) || told && !floods.Awaited() {
		hash := fnv.New64a()
		_, _ = fmt.Fprintf(hash, "flood %s %t %t %d", podUID, state.Watched, state.Flood != nil, state.Since.Unix())
		s.figure += hash.Sum64()
	}
}

// floodTally collects a profile's VMs that are flooded.
type floodTally struct {
	// before is what the status said, awaited see Floods.
	before  []v1alpha1.FloodedVM
	awaited bool
	watched int
	vms     []v1alpha1.FloodedVM
}

// add takes in one VM. A flood of which the status told before keeps its time and its
// words: figures change with each round, and each change would be a write. So does one of
// which an earlier manager told, while the VM's agent was not heard yet.
func (t *floodTally) add(name, node string, state flood.State) {
	if state.Watched {
		t.watched++
	}
	at := slices.IndexFunc(t.before, func(was v1alpha1.FloodedVM) bool { return was.Name == name && was.Node == node })
	switch {
	case at >= 0 && (state.Flood != nil || t.awaited && state == (flood.State{})):
		t.vms = append(t.vms, t.before[at])
	case state.Flood != nil:
		t.vms = append(t.vms, v1alpha1.FloodedVM{
			Name: name, Node: node, Since: metav1.NewTime(state.Since).Rfc3339Copy(), Message: floodMessage(state.Flood),
		})
	}
}

// status returns what the API says: those that have been flooded for longest.
func (t *floodTally) status() []v1alpha1.FloodedVM {
	slices.SortFunc(t.vms, func(x, y v1alpha1.FloodedVM) int {
		return cmp.Or(x.Since.Compare(y.Since.Time), cmp.Compare(x.Name, y.Name))
	})
	return t.vms[:min(len(t.vms), maxFloodedVMs)]
}

// floodMessage names the evidence.
func floodMessage(f *model.Flood) string {
	sources := fmt.Sprintf("about %d addresses", f.Sources)
	if f.Sources == 1 {
		sources = "one address"
	}
	return cut(fmt.Sprintf("%.0f packets/s towards it of %.0f bytes on average, %.0f %% of them SYN, from %s; it answers %.1f %% of them",
		float64(f.SegmentsPerSecond), f.MeanBytes, 100*f.SYNShare, sources, 100*f.ReplyShare), maxFloodedMessage)
}

// condition tells whether any VM is flooded. Its words have no figures that change while
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
		out.Message = fmt.Sprintf("%d VMs are flooded with small packets, see status.floodedVMs; %s", len(t.vms), what)
	case t.watched > 0:
		out.Message = "no VM that is watched is flooded with small packets"
	default:
		out.Status, out.Reason = metav1.ConditionUnknown, v1alpha1.ReasonNotWatched
		out.Message = "no agent watches the VMs for floods: lever Buffering does, where the EnergyPolicy of a VM's node has it, see status.levers"
	}
	return out
}
