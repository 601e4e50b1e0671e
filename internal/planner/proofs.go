package planner

import (
	"cmp"
	"slices"
	"strings"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/buffering"
)

// Trials reject what a lever saves by. What a lever protects with stays, as
// in the off slots of its trials: a ceiling that a profile asks for, the defence against
// floods, and slices, which save nothing at all and are never tried. The cores of the pools
// are kept by pins: without lever Affinity there are none, and slices alone keep pools
// apart.

// proof returns how a lever stands with experiments, or nil where nothing is known.
func (w *work) proof(lever v1alpha1.Lever) *model.Proof {
	if w.node.ProofsAwaited {
		return nil
	}
	at := slices.IndexFunc(w.node.Proofs, func(p model.Proof) bool { return p.Lever == lever })
	if at < 0 {
		return nil
	}
	return &w.node.Proofs[at]
}

// rejection returns the proof that keeps a lever away from the node, or nil.
func (w *work) rejection(lever v1alpha1.Lever) *model.Proof {
	if proof := w.proof(lever); proof != nil && !proof.Use {
		return proof
	}
	return nil
}

// protects returns whether a lever does something for a VM that is no saving.
func protects(lever v1alpha1.Lever, vm *model.VM) bool {
	switch lever {
	case v1alpha1.LeverShaping:
		return vm.Ceiling > 0
	case v1alpha1.LeverBuffering:
		return vm.DefendFloods
	}
	return false
}

// applyRejections removes from what owners ask what trials reject.
func (w *work) applyRejections() {
	w.vms = slices.Clone(w.asked)
	turns, windows := w.rejection(v1alpha1.LeverShaping) == nil, w.rejection(v1alpha1.LeverBuffering) == nil
	for i := range w.vms {
		if !turns {
			w.vms[i].MaxDelay = 0
		}
		if !windows {
			w.vms[i].LatencyBudget = 0
		}
	}
}

// explainRejection returns why a lever is rejected, in the words of the trials. Without the node's
// meter there are none, and who waits for one reads that.
func (w *work) explainRejection(proof *model.Proof) model.LeverReason {
	why := because(proof.Lever, stanceReason(proof.Stance))
	why.Message = proof.Message
	if why.Reason == v1alpha1.ReasonAwaitingTrial && w.node.MeterLost {
		if why.Message != "" {
			why.Message += "; "
		}
		why.Message += "MeterLost: no meter knows the node's power any more, see condition MeterAvailable of policy " + w.node.Policy.Name
	}
	why.Message = cutMessage(why.Message)
	return why
}

// Prove restricts what a lever that the manager itself applies may do, by how it stands with trials. Nil: that
// is not known yet, and what is in force stays.
func (p *Permission) Prove(proof *model.Proof) {
	switch {
	case p.Undo:
	case proof != nil && !proof.Use:
		p.undo(stanceReason(proof.Stance), proof.Message)
	case proof == nil && !p.Hold:
		p.hold(v1alpha1.ReasonAwaitingProof, "it is not known yet what trials showed of the lever: nothing new is done until then")
	}
}

// stanceReason is why a lever of a stance is not used. One that was adopted elsewhere is not used
// on a node on which it does not save.
func stanceReason(stance model.Stance) string {
	switch stance {
	case model.StanceRejected, model.StanceAdopted:
		return v1alpha1.ReasonRejectedByTrial
	case model.StanceUndecided:
		return v1alpha1.ReasonTrialUndecided
	}
	return v1alpha1.ReasonAwaitingTrial
}

// explainRejections adds to what levers protect with why they do no more.
func (w *work) explainRejections() {
	for _, lever := range []v1alpha1.Lever{v1alpha1.LeverBuffering, v1alpha1.LeverShaping} {
		proof := w.rejection(lever)
		if proof == nil {
			continue
		}
		rejected := w.explainRejection(proof)
		words := cmp.Or(rejected.Message, rejected.Reason)
		for i := range w.asked {
			why, asked := w.VMs[i].Reason(lever), &w.asked[i]
			switch {
			case !actsBy(&w.VMs[i], lever):
				continue
			case lever == v1alpha1.LeverBuffering && buffering.Longest(asked) > 0:
				why.Message = cutMessage("packets are held during floods only: " + words)
			case lever == v1alpha1.LeverShaping && asked.Defers():
				why.Message = cutMessage("takes no turns: " + words)
			}
			w.VMs[i].Explain(why)
		}
	}
}

// cutMessage cuts words of others to what the API takes of a message.
func cutMessage(words string) string {
	return strings.ToValidUTF8(words[:min(len(words), longestMessage)], "")
}
