package power

import "github.com/joulevirt/joulevirt/internal/units"

// Share is what one VM did of a node's load.
type Share struct {
	BusyCores units.Cores
	WakeUps   units.PerSecond
}

// Attribute divides a node's measured power into what it draws asleep, what its
// VMs cause and the rest, the system: idle + system + the sum of into is what
// was measured, up to rounding, and none is negative.
//
// A VM weighs PerBusyCore times its cores, plus PerWakeUp times its wake-ups,
// plus its share by cores of PerAwakeCore times the node's awake cores. What is
// measured above Idle is divided by weight: how far the model is off as a whole
// does not matter. A share ranks VMs; it does not judge a saving, which changes
// the cost of the others too.
//
// Into is as long as vms, and gets the watts of each.
func Attribute(c Coefficients, measured units.Watts, node Load, vms []Share, into []units.Watts) (idle, system units.Watts) {
	idle = min(c.Idle, measured)
	dynamic := measured - idle

	cores, awake := 0.0, float64(node.AwakeCores)
	for _, vm := range vms {
		cores += float64(vm.BusyCores)
	}
	// The VMs' counters and the node's are not read at the same instant: VMs may
	// seem to use more than the node.
	busy := max(cores, float64(node.BusyCores))

	weights := units.Watts(0)
	for i, vm := range vms {
		used := float64(vm.BusyCores)
		kept := 0.0
		if used > 0 {
			kept = awake * (used / busy)
		}
		into[i] = c.dynamic(used, float64(vm.WakeUps), kept)
		weights += into[i]
	}
	total := max(weights, c.dynamic(float64(node.BusyCores), float64(node.WakeUps), awake))
	rest := dynamic
	for i := range vms {
		share := units.Watts(0)
		if total > 0 {
			// Never more than what is left, which rounding could want.
			share = min(rest, dynamic*(into[i]/total))
		}
		into[i] = share
		rest -= share
	}
	return idle, rest
}
