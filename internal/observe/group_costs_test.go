package observe

import (
	"testing"

	"github.com/joulevirt/joulevirt/internal/model"
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
