package planner

import (
	"testing"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// A VM that was left unbound is bound at once where that would be well with all of its
// vCPUs busy, and else when it is tried again.
func TestUnboundVMsAreTriedAgain(t *testing.T) {
	const auto, pinned = model.AffinityAuto, model.AffinityPinned
	for name, tc := range map[string]struct {
		affinity model.AffinityPreference
		was      model.Reason
		// busy is what else each CPU does.
		busy   units.Cores
		review bool
		want   string
	}{
		"room for all vCPUs":                   {auto, model.ReasonCoreWouldBeHot, 0.1, false, "Planned apply=true a:Pinned/2"},
		"not while one may be busy":            {auto, model.ReasonCoreWouldBeHot, 0.5, false, "NothingToDo apply=true a:CoreWouldBeHot/0"},
		"nor when it was no saving":            {auto, model.ReasonNoSaving, 0.5, false, "NothingToDo apply=true a:NoSaving/0"},
		"nor when its owner wishes it":         {pinned, model.ReasonCoreWouldBeHot, 0.5, false, "NothingToDo apply=true a:CoreWouldBeHot/0"},
		"but when it is looked at anew":        {auto, model.ReasonCoreWouldBeHot, 0.5, true, "Planned apply=true a:Pinned/2"},
		"and when its owner wishes it by now":  {pinned, model.ReasonNoSaving, 0.5, false, "Planned apply=true a:Pinned/2"},
		"and when another reason went away":    {auto, model.ReasonLeverNotAllowed, 0.5, false, "Planned apply=true a:Pinned/2"},
		"and when the plan knew nothing of it": {auto, "", 0.5, false, "Planned apply=true a:Pinned/2"},
	} {
		node := newNode("a")
		node.VMs[0].Affinity, node.Review = tc.affinity, tc.review
		for cpu := range 8 {
			node.Rates.CPUs = append(node.Rates.CPUs, model.CPURates{CPU: cpu, BusyCores: tc.busy})
		}
		for i := range node.Rates.VMs[0].VCPUs {
			node.Rates.VMs[0].VCPUs[i].RunCores = 0.1
		}
		current := &model.Plan{Policy: "p", Mode: model.ModeEnforce, Apply: true}
		if tc.was != "" {
			current.VMs = []model.VMPlan{{PodUID: "a", Reasons: []model.LeverReason{{Lever: model.LeverAffinity, Reason: tc.was}}}}
		}
		if got := outcome(Plan(with(node, current, nil), now())); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// A VM enters pool Network at once, and leaves it when it is looked at anew.
func TestVMsLeaveTheNetworkPoolLate(t *testing.T) {
	for name, tc := range map[string]struct {
		was    model.Pool
		name   string
		review bool
		want   model.Pool
	}{
		"enters":         {model.PoolCompute, "n", false, model.PoolNetwork},
		"stays":          {model.PoolNetwork, "c", false, model.PoolNetwork},
		"leaves":         {model.PoolNetwork, "c", true, model.PoolCompute},
		"is new":         {model.PoolNone, "c", false, model.PoolCompute},
		"nothing to say": {model.PoolCompute, "c", false, model.PoolCompute},
	} {
		node := poolNode(tc.name)
		node.Review = tc.review
		node.Current = &model.Plan{Policy: "p", Mode: model.ModeEnforce, Apply: true, VMs: []model.VMPlan{{PodUID: tc.name, Pool: tc.was}}}
		if got := Plan(node, now()).VMs[0].Pool; got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
