package node

import (
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/controllertest"
)

// potentialNode has so many VMs of one busy vCPU, on two cores.
func potentialNode(vms int) model.Node {
	node := model.Node{Name: "n", Reported: true, Rates: &model.NodeRates{}, Policy: model.Policy{MaxCoreUtilization: 0.85, Sharing: v1alpha1.ShareAny}}
	for i := range 2 {
		node.Topology.Cores = append(node.Topology.Cores, model.Core{CPUs: units.NewCPUSet(i)})
	}
	for i := range vms {
		uid := string(rune('a' + i))
		node.VMs = append(node.VMs, model.VM{PodUID: uid, NamespaceSelected: true, Affinity: v1alpha1.AffinityPinned})
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
	busier.VMs[0].Tuning.Since = controllertest.StatusTime()
	limited.Policy.Reserved = units.NewCPUSet(0, 1)
	unheard.Rates, out.OptOut.All = nil, true
	unreadable := potentialNode(2)
	unreadable.Reported, unreadable.ReportUnreadable, unreadable.Rates = false, true, nil
	const unknown, nothing = -1, -2
	store := NewPotentialStore()
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
		store.planned(tc.node, controllertest.StatusTime().Add(tc.after))
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
	store.planned(one, controllertest.StatusTime())
	if store.forget("n"); store.Of("n") != nil {
		t.Errorf("a node without a policy is remembered: %+v", store.Of("n"))
	}
}
