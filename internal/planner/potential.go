package planner

import (
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/affinity"
	"github.com/joulevirt/joulevirt/internal/planner/buffering"
	"github.com/joulevirt/joulevirt/internal/units"
)

// modelError is the relative standard error of what is predicted: that of the form of the
// models of power, see power.NodeModel.Change, which is what is left when all else is known.
const modelError = 0.3

// Potential predicts what each lever of nodes that saves, in the order of their names, would save
// on a node by the models if the policy were to enforce all of them: now, on all VMs whose
// owners allow it, and with no regard to trials. What is in force does not matter. It is
// empty where nothing can be done: the node's owner keeps all levers away, or its report
// makes no sense. It is nil while nothing is known of the node's cores or its VMs.
//
// Affinity is judged by what its placement predicts, Buffering by what a packet costs with
// the window that plans come to. Shaping has VMs and no watts: no model says what taking
// turns saves. Slice is left out: it only protects.
func Potential(node model.Node, now time.Time) []model.Potential {
	current := node.Current
	node = withoutPolicy(node)
	plan := newPlan(&node)
	w := newWork(&plan, node, now)
	if w.permission.Undo || node.ReportUnreadable {
		return []model.Potential{}
	}
	if w.permission.Hold {
		return nil
	}
	w.permitVMs()
	w.classify()
	w.dividePools()
	w.shapeTraffic()
	return []model.Potential{
		w.potentialOfAffinity(current), w.potentialOfBuffering(now), w.potentialOfShaping(),
	}
}

// withoutPolicy is a node on which nothing is in force and everything may be done.
func withoutPolicy(node model.Node) model.Node {
	policy := &node.Policy
	policy.Mode, policy.Paused, policy.Levers, policy.AllowModelled = v1alpha1.ModeEnforce, false, v1alpha1.NodeLevers(), true
	node.Review, node.Frozen, node.Hold, node.NodesBusy = true, false, model.Hold{}, false
	node.Proofs, node.ProofsAwaited, node.Current = nil, false, nil
	return node
}

// potentialOfAffinity is what binding saves against no binding at all. current is the plan
// in force, or nil: it shows where threads run that are no vCPUs.
func (w *work) potentialOfAffinity(current *model.Plan) model.Potential {
	var vms []affinity.VM
	for _, i := range w.affinity {
		if rates := w.node.Rates.VM(w.VMs[i].PodUID); rates != nil && len(rates.VCPUs) > 0 {
			vm := w.affinityVM(i, rates)
			if current != nil {
				was, _ := current.VM(w.VMs[i].PodUID)
				vm.CurrentThreads = was.Threads
			}
			vms = append(vms, vm)
		}
	}
	placement := affinity.Potential(w.affinityNode(), vms)
	out := model.Potential{Lever: v1alpha1.LeverAffinity, VMs: len(vms), Considered: len(vms)}
	for _, decision := range placement.Decisions {
		if len(decision.Pins) == 0 {
			out.VMs--
		}
	}
	if out.VMs > 0 {
		out.Watts = placement.Before - placement.After
		out.StdErr = modelError * max(out.Watts, -out.Watts)
	}
	return out
}

// potentialOfBuffering adds up what holding each VM's packets saves. Where that was not
// seen, it may as well be nothing, or twice as much: its error is half of it.
func (w *work) potentialOfBuffering(now time.Time) model.Potential {
	const unseenError = 0.5
	out := model.Potential{Lever: v1alpha1.LeverBuffering}
	for _, i := range w.buffering {
		rates := w.node.Rates.VM(w.VMs[i].PodUID)
		if rates == nil {
			continue
		}
		predicted := buffering.Potential(w.vms[i], rates, w.node.Costs, now)
		if predicted.Known {
			out.Considered++
		}
		if predicted.Window == 0 {
			continue
		}
		out.VMs++
		out.Watts += predicted.Saved
		share := units.Watts(unseenError)
		if predicted.Measured {
			share = modelError
		}
		out.StdErr += share * max(predicted.Saved, -predicted.Saved)
	}
	return out
}

func (w *work) potentialOfShaping() model.Potential {
	out := model.Potential{Lever: v1alpha1.LeverShaping}
	for i := range w.VMs {
		if w.VMs[i].Shaping.Turn != nil {
			out.VMs++
		}
	}
	return out
}
