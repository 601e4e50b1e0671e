package observe

import (
	"testing"

	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/units"
)

// A VM on standby must seem to cost what it costs when it is active, or the two
// change places for ever.
func TestIdleMembersAreOfTheGroupsClass(t *testing.T) {
	vm := func(packets units.PacketsPerSecond, vhost units.Cores) *model.VMRates {
		return &model.VMRates{
			VCPUs: []model.VCPURates{{ThreadRates: model.ThreadRates{RunCores: 0.1}}},
			Vhost: model.ThreadRates{RunCores: vhost},
			Taps: []model.TapRates{{Name: "tap0", ToVM: model.TrafficRates{
				PacketsPerSecond: packets, BitsPerSecond: 8000 * units.BitsPerSecond(packets),
			}}},
		}
	}
	for name, test := range map[string]struct {
		busy []*model.VMRates
		want string
	}{
		"with vhost workers":    {[]*model.VMRates{vm(1000, 0.1)}, "1-vcpu"},
		"without":               {[]*model.VMRates{vm(1000, 0)}, "1-vcpu-no-vhost"},
		"some with":             {[]*model.VMRates{vm(1000, 0), vm(1000, 0.1)}, "1-vcpu"},
		"nobody has traffic":    {[]*model.VMRates{vm(0, 0)}, "1-vcpu"},
		"nothing is known":      {[]*model.VMRates{nil}, "1-vcpu"},
		"of one nothing, other": {[]*model.VMRates{nil, vm(1000, 0)}, "1-vcpu-no-vhost"},
	} {
		t.Run(name, func(t *testing.T) {
			idle := vm(0, 0)
			all := append(test.busy, idle)
			if got := basisOf("a", idle, packetSize(idle, meanPacket(all)), vhostSeen(all)).key.Class; got != test.want {
				t.Errorf("an idle VM is of class %s, want %s", got, test.want)
			}
		})
	}
}

// A VM that restarts has no rates for a moment. What was learned of the group must
// outlive that in the status, for a manager that is young itself.
func TestLimitsAreRememberedWhileRatesAreMissing(t *testing.T) {
	profile := &v1alpha1.VMNetworkProfile{}
	profile.Status.Traffic = &v1alpha1.TrafficStatus{Shares: []v1alpha1.MemberShare{
		{Name: "stays", Node: "a", LimitBitsPerSecond: ptr.To(int64(1e6))},
		{Name: "moved", Node: "b", LimitBitsPerSecond: ptr.To(int64(1e6))},
	}}
	g := &Group{Profile: profile, Remember: true, Plan: planner.Group{
		Nodes:   []planner.GroupNode{{Name: "a"}},
		Members: []planner.GroupMember{{Ready: true}, {Ready: true}},
	}}
	g.Plan.Members[0].Name, g.Plan.Members[1].Name = "stays", "moved"
	(&GroupObserver{}).costs(g, []groupNode{{rates: &model.NodeRates{}}})
	if g.Plan.Missing != model.ReasonNoRates {
		t.Fatalf("missing is %q, want the rates", g.Plan.Missing)
	}
	if got := g.Plan.Members[0].Limit; got != 1e6 {
		t.Errorf("the limit of a VM that stays is %v, want what is remembered", got)
	}
	if got := g.Plan.Members[1].Limit; got != 0 {
		t.Errorf("the limit of a VM on another node is %v, want none", got)
	}
}
