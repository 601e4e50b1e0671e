package agent

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/publish"
)

const (
	reasonSwitchedOff = "SwitchedOff"
	trialWords        = "a trial switches the lever on and off"
	// settles is how long a lever has been on before what the status says of it is read
	// anew: a guest may take steady to go along.
	settles = 2 * steady
)

// switching is where a lever is in its schedule.
type switching struct {
	on bool
	// steady is true when it has been on for a while.
	steady bool
}

// tellTrials has the entries of levers that are on a schedule say the same whether the
// lever is on or off now: what was read back when it was on last. A status is written to
// the API server, and which block it is shows in the rates.
func (o *orders) tellTrials(entries []v1alpha1.VMApplied, previous *v1alpha1.NodePlanStatus, generation int64) {
	if len(o.switched) == 0 {
		return
	}
	type key struct {
		podUID types.UID
		lever  v1alpha1.Lever
	}
	before := map[key]*v1alpha1.VMApplied{}
	for i := range previous.VMs {
		one := &previous.VMs[i]
		before[key{one.PodUID, one.Lever}] = one
	}
	for i := range entries {
		one := &entries[i]
		lever, is := o.switched[one.Lever]
		if !is {
			continue
		}
		was := before[key{one.PodUID, one.Lever}]
		stands := was != nil && previous.ObservedGeneration == generation
		switch {
		case !lever.on && isOff(one):
			*one = lastOn(one, was, stands)
		case lever.on && !lever.steady && one.State == v1alpha1.LeverInForce && stands && was.State == v1alpha1.LeverInForce:
			*one = *was.DeepCopy()
		}
		if one.State == v1alpha1.LeverInForce {
			one.Message = onTrial(one.Message)
		}
	}
}

// isOff tells whether an entry says no more than that nothing is ordered.
func isOff(one *v1alpha1.VMApplied) bool {
	return one.State == v1alpha1.LeverInForce || one.State == v1alpha1.LeverIdle && one.Reason == v1alpha1.ReasonNothingToDo
}

// lastOn is what there is to say of a VM while the lever is off: what was said before, as
// far as it is of the lever when it was on. A guard's cool-down that ended is over.
func lastOn(one, was *v1alpha1.VMApplied, stands bool) v1alpha1.VMApplied {
	since := "the VM is known"
	switch {
	case was != nil && was.Reason == v1alpha1.ReasonGuardTripped:
		since = "a guard undid it for the VM"
	case was != nil && was.State == v1alpha1.LeverInForce,
		// The VM may have come since, and the plan made sense of.
		stands && was.Reason != reasonBadPlan && was.Message != notRunning().message:
		return *was.DeepCopy()
	}
	return v1alpha1.VMApplied{
		PodUID: one.PodUID, Namespace: one.Namespace, Name: one.Name, Lever: one.Lever,
		State: v1alpha1.LeverIdle, Reason: reasonSwitchedOff, Message: trialWords + ": it is off, and was not on since " + since,
	}
}

func onTrial(message string) string {
	switch {
	case message == "":
		return trialWords
	case strings.HasPrefix(message, trialWords):
		return message
	default:
		return publish.CutMessage(trialWords + "; " + message)
	}
}
