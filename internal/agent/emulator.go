package agent

import (
	"fmt"

	"github.com/joulevirt/joulevirt/internal/agent/actuate/affinity"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// freeNarrow leaves the emulator threads unrestricted that the plan would crowd. QEMU's
// main thread creates others, and all that a guest waits for with the big lock held is
// done by it: it needs room near its vCPUs, which is a whole last-level cache. The other
// pins of the VM stand: a cpuset that grew since the plan was made is no fault of theirs.
func (o *orders) freeNarrow(vms []affinity.VM, topology model.Topology) {
	var room []model.Core
	for i := range vms {
		vm := &vms[i]
		pins := o.pins[vm.PodUID]
		if pins.Emulator.Intersection(vm.Cpuset).IsEmpty() {
			continue // none is wanted, or the actuator says why it cannot be
		}
		if room == nil {
			room = roomy(topology, o.excluded)
		}
		if hasCache(pins.Emulator, vm.Cpuset, room) {
			continue
		}
		o.freed[vm.PodUID] = fmt.Sprintf(
			"the emulator thread is left unrestricted: affinity.emulatorCPUs %.64s have no last-level cache as a whole within the container's cpuset %.64s",
			pins.Emulator, vm.Cpuset)
		pins.Emulator = units.CPUSet{}
		o.pins[vm.PodUID] = pins
	}
}

// roomy are the cores that nothing keeps VMs from.
func roomy(topology model.Topology, excluded units.CPUSet) []model.Core {
	excluded = excluded.Union(topology.Taken())
	room := make([]model.Core, 0, len(topology.Cores))
	for _, core := range topology.Cores {
		if core.CPUs.Intersection(excluded).IsEmpty() {
			room = append(room, core)
		}
	}
	return room
}

// hasCache tells whether a mask has all cores of some last-level cache that are wholly in
// the cpuset.
func hasCache(mask, cpuset units.CPUSet, cores []model.Core) bool {
	whole := map[int]bool{}
	for _, core := range cores {
		if !core.CPUs.IsSubsetOf(cpuset) {
			continue
		}
		so, seen := whole[core.LLC]
		whole[core.LLC] = (so || !seen) && core.CPUs.IsSubsetOf(mask)
	}
	for _, has := range whole {
		if has {
			return true
		}
	}
	return false
}
