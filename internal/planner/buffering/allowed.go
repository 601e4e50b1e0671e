package buffering

import (
	"slices"
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// interactiveWindow is the longest for VMs of class Interactive, whatever their budget:
	// what a window does to the time of a reply is not seen from outside.
	interactiveWindow = 250 * time.Microsecond
	// leastPackets in a window: with fewer nothing is bunched.
	leastPackets = 2
)

// Longest is the longest window that a VM's class and latency budget allow; 0 when they
// allow none.
func Longest(vm *model.VM) time.Duration {
	longest := interactiveWindow
	if vm.TrafficClass == v1alpha1.TrafficThroughput || vm.TrafficClass == v1alpha1.TrafficDeferrable {
		longest = model.LongestWindow
	}
	return model.WindowOf(min(vm.LatencyBudget/2, longest))
}

// limit returns why windows are no longer than they are.
type limit struct {
	reason  string
	message string
}

// allowedWindow is the longest window that the profile allows and that was not seen to
// hurt, or 0. Windows longer than one that hurt are not better.
func allowedWindow(vm *model.VM, now time.Time) (time.Duration, limit) {
	longest := Longest(vm)
	if longest == 0 {
		return 0, limit{v1alpha1.ReasonNoLatencyBudget, "the profile's latencyBudget is less than twice the shortest window of 125us"}
	}
	why := limit{v1alpha1.ReasonBuffered, "no longer window is within the profile's latencyBudget"}
	if model.WindowOf(vm.LatencyBudget/2) > longest {
		why.message = "no longer window is for trafficClass Interactive"
	}
	for _, hurt := range vm.Tuning.Hurts {
		if hurt.Window > longest || !now.Before(hurt.Until) {
			continue
		}
		longest = model.WindowOf(hurt.Window - 1)
		why = limit{v1alpha1.ReasonHurts, "longer windows were seen to cost service: " + cut(hurt.Why)}
		if longest == 0 {
			why.message = "all windows that the profile allows were seen to cost service: " + cut(hurt.Why)
		}
	}
	return longest, why
}

// cut bounds words that messages quote, which the API bounds.
func cut(words string) string {
	const most = 64
	return strings.ToValidUTF8(words[:min(len(words), most)], "")
}

// rateFor is the rate from which packets are held for a window: what the profile sets, or two in
// a window.
func rateFor(vm *model.VM, window time.Duration) units.PacketsPerSecond {
	if vm.OnPackets > 0 {
		return vm.OnPackets
	}
	return units.PacketsPerSecond(leastPackets / window.Seconds())
}

// LeastRate is the rate of a VM's packets below which none is held, whatever the window.
func LeastRate(vm *model.VM) units.PacketsPerSecond {
	longest := Longest(vm)
	if longest == 0 {
		longest = model.LongestWindow // of a flood
	}
	return rateFor(vm, longest)
}

// settings are what the profile asks for with a window. 0: during floods only.
func settings(vm *model.VM, window time.Duration) model.Buffering {
	b := model.Buffering{Window: window, OnPackets: LeastRate(vm), Services: services(vm)}
	if window > 0 {
		b.OnPackets = rateFor(vm, window)
	}
	if vm.DefendFloods {
		b.FloodWindow = model.FloodWindow
	}
	return b
}

func services(vm *model.VM) []model.Service {
	return exempt(vm.Services[:min(len(vm.Services), model.MaxServices)], nil)
}

// firstWindow is the shortest in which packets make a bunch at the rate from which they are held, or
// where the profile sets none, at the rate at which they came when none was held.
func firstWindow(vm *model.VM) time.Duration {
	on := vm.OnPackets
	if without, seen := trialsOf(vm.Tuning.Trials).enough(0); on == 0 && seen {
		on = without.FastestPerSecond
	}
	return bunching(on)
}

// bunching is the shortest window in which packets make a bunch at a rate.
func bunching(on units.PacketsPerSecond) time.Duration {
	for w := model.ShortestWindow; w < model.LongestWindow; w *= 2 {
		if float64(on)*w.Seconds() >= leastPackets {
			return w
		}
	}
	return model.LongestWindow
}

// Allowed leaves of a buffering what the profile still allows and what did not hurt since:
// no more packets are held, and none for longer.
func Allowed(vm *model.VM, was model.Buffering, now time.Time) model.Buffering {
	longest, _ := allowedWindow(vm, now)
	is := settings(vm, min(was.Window, longest))
	is.FloodWindow = min(is.FloodWindow, was.FloodWindow)
	is.OnPackets = max(is.OnPackets, was.OnPackets)
	is.Services = exempt(is.Services, was.Services)
	if len(is.Services) > model.MaxServices {
		// Those that the profile names are exempt for certain when nothing is held.
		is.FloodWindow, is.Services = 0, services(vm)
	}
	if is.IsZero() || !is.IsValid() {
		return model.Buffering{}
	}
	return is
}

// exempt are services of either, in their order: a plan that is read back is equal.
func exempt(is, was []model.Service) []model.Service {
	kept := slices.Concat(is, was)
	slices.SortFunc(kept, model.Service.Compare)
	return slices.Compact(kept)
}

// HoldsLess returns whether a buffering holds no packet that another does not, and none for
// longer.
func HoldsLess(is, was model.Buffering) bool {
	if is.IsZero() {
		return true
	}
	if is.Window > was.Window || is.FloodWindow > was.FloodWindow || is.OnPackets < was.OnPackets {
		return false
	}
	return is.FloodWindow == 0 || !slices.ContainsFunc(was.Services, func(s model.Service) bool { return !slices.Contains(is.Services, s) })
}
