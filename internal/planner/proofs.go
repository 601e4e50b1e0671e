package planner

import (
	"slices"
	"strings"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/buffering"
)

// What experiments keep away is what a lever saves by. What a lever protects with stays, as
// in the off blocks of its trials: a ceiling that a profile asks for, the defence against
// floods, and slices, which save nothing at all and are never tried. The cores of the pools
// are kept by pins: without lever Affinity there are none, and slices alone keep pools
// apart.

// proof returns how a lever stands with experiments, or nil where nothing is known.
func (w *work) proof(lever model.Lever) *model.Proof {
	if w.node.ProofsAwaited {
		return nil
	}
	at := slices.IndexFunc(w.node.Proofs, func(p model.Proof) bool { return p.Lever == lever })
	if at < 0 {
		return nil
	}
	return &w.node.Proofs[at]
}

// against returns the proof that keeps a lever away from the node, or nil.
func (w *work) against(lever model.Lever) *model.Proof {
	if proof := w.proof(lever); proof != nil && !proof.Use {
		return proof
	}
	return nil
}

// protects tells whether a lever does something for a VM that is no saving.
func protects(lever model.Lever, vm *model.VM) bool {
	switch lever {
	case model.LeverShaping:
		return vm.Ceiling > 0
	case model.LeverBuffering:
		return vm.DefendFloods
	}
	return false
}

// withhold takes from what owners ask what experiments keep away.
func (w *work) withhold() {
	w.vms = slices.Clone(w.asked)
	turns, windows := w.against(model.LeverShaping) == nil, w.against(model.LeverBuffering) == nil
	for i := range w.vms {
		if !turns {
			w.vms[i].MaxDelay = 0
		}
		if !windows {
			w.vms[i].LatencyBudget = 0
		}
	}
}

// withheld says why a lever is kept away, in the words of the experiments. Without the node's
// meter there are none, and who waits for one is told that.
func (w *work) withheld(proof *model.Proof) model.LeverReason {
	why := because(proof.Lever, reasonOf(proof.Stance))
	if proof.Message != "" {
		why.Message = proof.Message
	}
	if why.Reason == model.ReasonAwaitingTrial && w.node.MeterLost {
		why.Message += ": MeterLost: no meter knows the node's power any more, see condition MeterAvailable of policy " + w.node.Policy.Name
	}
	why.Message = bounded(why.Message)
	return why
}

// reasonOf is why a lever of a stance is not used. One that was adopted elsewhere is kept
// away from a node on which it does not save.
func reasonOf(stance model.Stance) model.Reason {
	switch stance {
	case model.StanceRejected, model.StanceAdopted:
		return model.ReasonRejectedByTrial
	case model.StanceUndecided:
		return model.ReasonTrialUndecided
	}
	return model.ReasonAwaitingTrial
}

// explainWithheld adds to what levers protect with why they do no more.
func (w *work) explainWithheld() {
	for _, lever := range []model.Lever{model.LeverBuffering, model.LeverShaping} {
		proof := w.against(lever)
		if proof == nil {
			continue
		}
		words := w.withheld(proof).Message
		for i := range w.asked {
			why, asked := w.VMs[i].Reason(lever), &w.asked[i]
			switch {
			case !actsBy(&w.VMs[i], lever):
				continue
			case lever == model.LeverBuffering && buffering.Longest(asked) > 0:
				why.Message = bounded("packets are held during floods only: " + words)
			case lever == model.LeverShaping && asked.Defers():
				why.Message = bounded(because(lever, model.ReasonCeiling).Message + ", and takes no turns: " + words)
			}
			w.VMs[i].Explain(why)
		}
	}
}

// bounded cuts words of others to what the API takes of a message.
func bounded(words string) string {
	return strings.ToValidUTF8(words[:min(len(words), longestWords)], "")
}
