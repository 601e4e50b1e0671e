package pools

import "github.com/joulevirt/joulevirt/api/v1alpha1"

// bounds are what a VM must do to enter pool Network.
type bounds struct {
	// rate is the least packets per second, both directions together.
	rate float64
	// cost is the most CPU time of the whole VM per packet, in seconds.
	cost float64
}

// enter returns the bounds of a traffic class: what its owner says of a VM's traffic
// shifts them and decides nothing.
//
// Moving a packet costs a VM 5 to 50 us on hardware and up to 330 us under emulation;
// a web or key-value server spends up to some hundred us on a packet. A VM that spends
// more computes for the most part.
func enter(class v1alpha1.TrafficClass) bounds {
	switch class {
	case v1alpha1.TrafficInteractive:
		return bounds{rate: 50, cost: 2e-3}
	case v1alpha1.TrafficDeferrable:
		return bounds{rate: 10_000, cost: 100e-6}
	}
	return bounds{rate: 1000, cost: 300e-6}
}

const (
	// A VM leaves pool Network below a quarter of the rate by which it entered, or above
	// three times the cost: rates are means over a second, and swing.
	leaveRate = 1.0 / 4
	leaveCost = 3.0
	// idleUse is the use of CPU below which a VM computes nothing: the timers of an idle
	// guest cost as much. A VM of pool Network counts as idle up to twice of it.
	idleUse = 0.05
	// someTraffic is the packets per second from which on an idle VM of class Interactive
	// counts as a network VM that has little to do just now.
	someTraffic = 5
	// mostStarved is how much faster than now a VM is believed to be without waiting.
	mostStarved = 10
)

// Classify returns the pool of a VM by what it does: how many packets it moves and how
// much CPU time it runs for each. Time that it waits does not count as cost, or a VM
// would leave the pool because it is kept waiting; rather is its rate taken for what it
// would be without.
//
// A VM that does neither keeps its pool. What the owner says goes before all.
func Classify(vm VM) v1alpha1.Pool {
	switch vm.Preference {
	case v1alpha1.PoolAlwaysNetwork:
		return v1alpha1.PoolNetwork
	case v1alpha1.PoolAlwaysCompute:
		return v1alpha1.PoolCompute
	}
	rate, run := float64(vm.Rates.Traffic().PacketsPerSecond), float64(vm.Rates.Busy())
	in := enter(vm.Class)
	idle := idleUse
	if vm.Current == v1alpha1.PoolNetwork {
		idle *= 2
	}
	if run < idle && rate < in.rate {
		if vm.Current == v1alpha1.PoolNone && vm.Class == v1alpha1.TrafficInteractive && rate >= someTraffic {
			return v1alpha1.PoolNetwork
		}
		return orCompute(vm.Current)
	}
	cost := run / max(rate, 1e-9)
	if run > 0 {
		rate *= min(mostStarved, max(1, float64(vm.Rates.Demand())/run))
	}
	if vm.Current != v1alpha1.PoolNetwork {
		if rate >= in.rate && cost <= in.cost {
			return v1alpha1.PoolNetwork
		}
		return v1alpha1.PoolCompute
	}
	// A VM that others, its limit or its weight keep from its packets moves few.
	kept := vm.Disturbance.Disturbs() && vm.Disturbance != v1alpha1.CauseOwnWork
	fast := rate >= in.rate*leaveRate || kept
	if fast && cost <= in.cost*leaveCost {
		return v1alpha1.PoolNetwork
	}
	return v1alpha1.PoolCompute
}

func orCompute(pool v1alpha1.Pool) v1alpha1.Pool {
	if pool == v1alpha1.PoolNetwork {
		return pool
	}
	return v1alpha1.PoolCompute
}
