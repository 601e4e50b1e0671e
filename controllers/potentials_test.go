package controllers

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/rates"
	"github.com/joulevirt/joulevirt/internal/units"
)

// potentialNode has so many VMs of one busy vCPU, on two cores.
func potentialNode(vms int) model.Node {
	node := model.Node{Name: "n", Reported: true, Rates: &model.NodeRates{}, Policy: model.Policy{MaxCoreUtilization: 0.85, Sharing: model.ShareAny}}
	for i := range 2 {
		node.Topology.Cores = append(node.Topology.Cores, model.Core{CPUs: units.NewCPUSet(i)})
	}
	for i := range vms {
		uid := string(rune('a' + i))
		node.VMs = append(node.VMs, model.VM{PodUID: uid, NamespaceSelected: true, Affinity: model.AffinityPinned})
		node.Rates.VMs = append(node.Rates.VMs, model.VMRates{
			PodUID: uid, AllowedCPUs: node.Topology.Online(),
			VCPUs: []model.VCPURates{{CPUs: node.Topology.Online(), ThreadRates: model.ThreadRates{RunCores: 0.3}}},
		})
	}
	return node
}

// What levers would save is worked out anew when it is old, or when somebody asks something
// else, and not more often; and stays while the node is not heard.
func TestPotentialsAreWorkedOutAnew(t *testing.T) {
	one, two, unheard, out := potentialNode(1), potentialNode(2), potentialNode(2), potentialNode(2)
	busier, limited := potentialNode(1), potentialNode(1)
	busier.Rates = two.Rates
	busier.VMs[0].Tuning.Since = statusTime()
	limited.Policy.Reserved = units.NewCPUSet(0, 1)
	unheard.Rates, out.OptOut.All = nil, true
	unreadable := potentialNode(2)
	unreadable.Reported, unreadable.ReportUnreadable, unreadable.Rates = false, true, nil
	const unknown, nothing = -1, -2
	store := newPotentialStore()
	for _, tc := range []struct {
		name  string
		node  model.Node
		after time.Duration
		want  int
	}{
		{"not heard yet", unheard, 0, unknown},
		{"the first", one, 0, 1},
		{"at once", two, 14 * time.Second, 1},
		{"a VM came", two, 15 * time.Second, 2},
		{"one went", one, 40 * time.Second, 1},
		{"it is seen to do something else", busier, 4 * time.Minute, 1},
		{"the policy is another", limited, 5 * time.Minute, 0},
		{"not heard", unheard, 7 * time.Minute, 0},
		{"heard", two, 8 * time.Minute, 2},
		{"nothing changed", two, 12 * time.Minute, 2},
		{"old", two, 13 * time.Minute, 2},
		{"a clock that went back", one, -time.Hour, 1},
		{"its owner keeps levers away", out, -time.Hour + 20*time.Second, nothing},
		{"and lets them come", one, -58 * time.Minute, 1},
		{"its report makes no sense", unreadable, -57 * time.Minute, nothing},
	} {
		store.planned(tc.node, statusTime().Add(tc.after))
		got := unknown
		if of := store.Of("n"); len(of) > 0 {
			got = of[0].VMs
		} else if of != nil {
			got = nothing
		}
		if got != tc.want {
			t.Errorf("%s: %d VMs, want %d", tc.name, got, tc.want)
		}
	}
	store.planned(one, statusTime())
	if store.forget("n"); store.Of("n") != nil {
		t.Errorf("a node without a policy is remembered: %+v", store.Of("n"))
	}
}

type potentials map[string][]model.Potential

func (p potentials) Of(node string) []model.Potential { return p[node] }

// The status sums up what levers would save on the policy's nodes, allowed or not.
func TestPolicyPotential(t *testing.T) {
	policy := policyOf("p", 0, "")
	of := func(affinity, buffering units.Watts) []model.Potential {
		return []model.Potential{
			{Lever: model.LeverAffinity, Watts: affinity, StdErr: affinity / 4, VMs: 3}, {Lever: model.LeverBuffering, Watts: buffering, StdErr: buffering / 2, VMs: 1},
			{Lever: model.LeverShaping, VMs: 2},
		}
	}
	view := policyScene(policy)
	view.potentials = potentials{"a": of(20, 0), "b": of(10, 4), "c": of(100, 100)}
	got := policyStatus(&policy, view)
	want := []v1alpha1.Saving{
		{Lever: v1alpha1.LeverAffinity, Modelled: true, Milliwatts: 30_000, LowMilliwatts: 15_000, HighMilliwatts: 45_000},
		{Lever: v1alpha1.LeverBuffering, Modelled: true, Milliwatts: 4_000, LowMilliwatts: 80, HighMilliwatts: 7_900},
	}
	if diff := cmp.Diff(want, got.Potential); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	saves := func(lever v1alpha1.Lever, of, low, high int64) v1alpha1.Saving {
		return v1alpha1.Saving{Lever: lever, Modelled: true, Milliwatts: of, LowMilliwatts: low, HighMilliwatts: high}
	}
	nodes := []v1alpha1.NodePotential{
		{Name: "a", Levers: []v1alpha1.Saving{saves(v1alpha1.LeverAffinity, 20_000, 10_000, 30_000)}},
		{Name: "b", Levers: []v1alpha1.Saving{saves(v1alpha1.LeverAffinity, 10_000, 5_100, 15_000), saves(v1alpha1.LeverBuffering, 4_000, 80, 7_900)}},
	}
	if diff := cmp.Diff(nodes, got.PotentialNodes); diff != "" {
		t.Errorf("by node (-want +got):\n%s", diff)
	}
	// A node that is not heard adds nothing, and a new leader repeats what was said until
	// it worked out all that it can.
	policy.Status = got
	view.potentials = potentials{"a": of(20, 0)}
	if got := policyStatus(&policy, view).Potential; len(got) != 1 || got[0].Milliwatts != 20_000 {
		t.Errorf("of node a alone %+v", got)
	}
	heard := rates.NewStore(testingclock.NewFakePassiveClock(statusTime()), time.Minute, time.Minute)
	heard.Put(&model.NodeRates{Node: "b", Time: statusTime()})
	view.powers.Rates = heard
	cores := []v1alpha1.CoreGroup{{Cores: []string{"0", "1"}}}
	view.reports["b"].Status.Topology.CoreGroups = cores
	again := policyStatus(&policy, view)
	if diff := cmp.Diff(want, again.Potential); diff != "" {
		t.Errorf("by a new leader (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(nodes, again.PotentialNodes); diff != "" {
		t.Errorf("by a new leader, by node (-want +got):\n%s", diff)
	}
	// What is known to be nothing is not awaited, nor is what cannot come.
	view.potentials = potentials{"a": of(20, 0), "b": {}}
	if got := policyStatus(&policy, view).Potential; len(got) != 1 {
		t.Errorf("where nothing can be done %+v", got)
	}
	view.potentials = potentials{"a": of(20, 0)}
	view.reports["b"].Status.Topology.CoreGroups = nil
	if got := policyStatus(&policy, view).Potential; len(got) != 1 {
		t.Errorf("where no cores are known %+v", got)
	}
	view.reports["b"].Status.Topology.CoreGroups = cores
	policy.Generation++
	if got := policyStatus(&policy, view).Potential; len(got) != 1 {
		t.Errorf("of a new generation %+v", got)
	}
}

// TestPotentialNodesAreBounded: of many those with the most are told, however they come.
func TestPotentialNodesAreBounded(t *testing.T) {
	var tally potentialTally
	for i := range 3 * maxPotentialNodes {
		watts := units.Watts(1 + i*7%(3*maxPotentialNodes))
		tally.add(fmt.Sprintf("n%d", i), []model.Potential{{Lever: model.LeverAffinity, Watts: watts, VMs: 1}}, true)
	}
	tally.add("nothing", []model.Potential{{Lever: model.LeverAffinity}}, true)
	got := tally.largest(2)
	if len(got) != maxPotentialNodes {
		t.Fatalf("%d nodes: %v", len(got), got)
	}
	for i, node := range got {
		if want := int64(3*maxPotentialNodes-i) * 1000; node.Levers[0].Milliwatts != want {
			t.Errorf("number %d is %+v, want %d mW", i, node, want)
		}
	}
}
