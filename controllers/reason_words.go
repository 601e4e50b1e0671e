package controllers

import (
	"cmp"
	"maps"
	"slices"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// otherReason is the label of all reasons that have none of their own.
const otherReason = "Other"

// reasonWords keeps the reasons that metrics have as labels few. Statuses take any word, agents
// write some of them, and a monitoring system keeps each that it ever saw.
type reasonWords struct {
	// known tells whether this version gives the word as a reason. Nil: all are known.
	known func(word string) bool
}

// fold returns the word, or otherReason for one that is not known.
func (w reasonWords) fold(word string) string {
	if w.known == nil || w.known(word) {
		return word
	}
	return otherReason
}

// saidOfLever is what agents say of a lever of a VM.
type saidOfLever struct {
	lever  v1alpha1.Lever
	state  v1alpha1.LeverState
	reason string
}

// mostSaid is how many different reasons a node's plan has as labels, beside otherReason of
// each lever and state: more than any plan has, unless its agent makes them up of known words.
const mostSaid = 60

// said counts VMs by what is said of their levers. Of more than mostSaid the rarest are folded.
func (w reasonWords) said(vms []v1alpha1.VMApplied) map[saidOfLever]float64 {
	counts := map[saidOfLever]float64{}
	for i := range vms {
		counts[saidOfLever{vms[i].Lever, vms[i].State, w.fold(vms[i].Reason)}]++
	}
	if len(counts) <= mostSaid {
		return counts
	}
	order := slices.SortedFunc(maps.Keys(counts), func(x, y saidOfLever) int {
		return cmp.Or(cmp.Compare(counts[y], counts[x]), cmp.Compare(x.lever, y.lever), cmp.Compare(x.state, y.state), cmp.Compare(x.reason, y.reason))
	})
	for _, rare := range order[mostSaid:] {
		count := counts[rare]
		delete(counts, rare)
		counts[saidOfLever{rare.lever, rare.state, otherReason}] += count
	}
	return counts
}
