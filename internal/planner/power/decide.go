// Package power decides which hosts without VMs are powered off, and which are powered on again
// before they are needed. All functions are pure.
package power

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Host is a node that a policy governs, and the machine below it.
type Host struct {
	Name, Zone string
	State      v1alpha1.HostState
	// Usable is true if the node is ready and takes pods.
	Usable bool
	// Closed says why the host must not be off, and Keeps what keeps the node from being empty.
	Closed, Keeps model.Hold
	// VMs is true if VMs are on the node, or come to it.
	VMs bool
	// EmptySince is when the node was first seen empty, and was in each look since.
	EmptySince time.Time
	// BootedAt is when the host last came back, and Boot how long that took. Zero: never.
	BootedAt time.Time
	Boot     time.Duration
	// CPUs of the node, and the memory that pods may request.
	CPUs   units.Cores
	Memory units.Bytes
}

// Zone counts the nodes of a failure domain, and those that are not ready, off or on their way.
type Zone struct{ Nodes, Down int }

// Room is how many more nodes of the zone may be down: a third of them may.
func (z Zone) Room() int { return z.Nodes/3 - z.Down }

// Problem is what is decided from.
type Problem struct {
	Now   time.Time
	Hosts []Host
	// Zones by name, with all nodes of the cluster.
	Zones map[string]Zone
	// Reserve is how many hosts without VMs stay on.
	Reserve int
	// MaxCPU and MaxMemory are the parts of the hosts' CPUs and memory up to which they are filled.
	MaxCPU, MaxMemory float64
	// Forecast is the most that VMs may use before a host that is off now could be on. It is good
	// for powering off only if Known.
	Forecast Demand
	Known    bool
	// AllOn says why all hosts must be on, and Hold why none is powered off now.
	AllOn, Hold model.Hold
}

// Decision is what is done with a host, and why.
type Decision struct {
	// On is true if the host must be on, Off if it is to be powered off. Neither: it stays.
	On, Off bool
	model.Hold
}

// Reasons for a host to be on, or to be off.
const (
	ReasonEmpty          = "Empty"
	ReasonNeeded         = "ForecastNeedsHost"
	ReasonReserve        = "Reserve"
	ReasonZone           = "ZoneLimit"
	ReasonEmptyLately    = "EmptyLately"
	ReasonBootedLately   = "BootedLately"
	ReasonForecastBuilds = "ForecastBuilds"
	ReasonOneAtATime     = "OneAtATime"
	ReasonNodeNotReady   = "NodeNotReady"
)

const (
	// emptyFor is how long a node is seen empty before its host is powered off.
	emptyFor = 10 * time.Minute
	// staysOn is how long a host stays on that was powered on.
	staysOn = time.Hour
	// spare is how much more than predicted must fit without a host that is powered off: it would
	// be powered on soon.
	spare = 1.1
	// slowest is how long a host may take to come back whose time is not known.
	slowest = 15 * time.Minute
)

// Deadline is how long a host may take to come back.
func Deadline(boot time.Duration) time.Duration { return max(slowest, 2*boot) }

// Decide returns a decision for each host. At most one more is powered off.
func Decide(p Problem) []Decision {
	d := decider{Problem: &p, out: make([]Decision, len(p.Hosts)), on: make([]bool, len(p.Hosts))}
	for i := range p.Hosts {
		d.start(i)
	}
	d.powerOn()
	d.powerOff()
	return d.out
}

type decider struct {
	*Problem
	out []Decision
	// on are the hosts that VMs can count on: those that are, and those that come.
	on []bool
}

// start decides what depends on nothing but the host itself.
func (d *decider) start(i int) {
	h := &d.Hosts[i]
	switch {
	case h.State == v1alpha1.HostFailed:
		d.out[i].Hold = model.Hold{Reason: v1alpha1.ReasonHostFailed}
	case h.State == v1alpha1.HostOn:
		d.on[i] = h.Usable
	case h.State == v1alpha1.HostPoweringOn:
		d.turnOn(i, model.Hold{Reason: ReasonNeeded, Message: "it is being powered on"})
	case d.AllOn.Reason != "":
		d.turnOn(i, d.AllOn)
	case h.Closed.Reason != "":
		d.turnOn(i, h.Closed)
	case h.State == v1alpha1.HostCordoned && h.Keeps.Reason != "":
		d.turnOn(i, h.Keeps)
	default:
		d.out[i] = Decision{Off: true, Hold: model.Hold{Reason: ReasonEmpty}}
	}
}

func (d *decider) turnOn(i int, why model.Hold) {
	d.on[i], d.out[i] = true, Decision{On: true, Hold: why}
}

// powerOn powers on what is missing: first hosts that have not been powered off yet, then those that
// boot fastest.
func (d *decider) powerOn() {
	var off []int
	for i := range d.Hosts {
		if d.out[i].Off {
			off = append(off, i)
		}
	}
	order := map[v1alpha1.HostState]int{v1alpha1.HostCordoned: 0, v1alpha1.HostOff: 1, v1alpha1.HostShuttingDown: 2}
	slices.SortStableFunc(off, func(a, b int) int {
		x, y := &d.Hosts[a], &d.Hosts[b]
		return cmp.Or(cmp.Compare(order[x.State], order[y.State]), cmp.Compare(x.Boot, y.Boot), cmp.Compare(x.Name, y.Name))
	})
	for _, i := range off {
		switch {
		case !d.fits(-1, 1):
			d.turnOn(i, model.Hold{Reason: ReasonNeeded, Message: fmt.Sprintf(
				"the VMs may soon use %.0f CPUs and request %.0f GiB, for which the hosts that are on do not suffice if one fails", d.Forecast.CPUs, float64(d.Forecast.Memory)/(1<<30))})
		case d.idle() < d.Reserve:
			d.turnOn(i, model.Hold{Reason: ReasonReserve, Message: fmt.Sprintf("fewer hosts without VMs are on than spec.hostPower.reserveNodes of the policy: %d", d.Reserve)})
		default:
			return
		}
	}
}

// powerOff decides about the hosts that are on, those first that have been empty for longest.
func (d *decider) powerOff() {
	var order []int
	busy := ""
	for i := range d.Hosts {
		switch d.Hosts[i].State {
		case v1alpha1.HostOn:
			order = append(order, i)
		case v1alpha1.HostCordoned, v1alpha1.HostShuttingDown, v1alpha1.HostPoweringOn:
			busy = d.Hosts[i].Name
		}
		if d.out[i].On {
			busy = d.Hosts[i].Name
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(d.Hosts[a].EmptySince.Compare(d.Hosts[b].EmptySince), cmp.Compare(d.Hosts[a].Name, d.Hosts[b].Name))
	})
	for _, i := range order {
		d.out[i].Hold = d.keepsOn(i)
		switch {
		case d.out[i].Reason != "":
		case busy != "":
			d.out[i].Hold = model.Hold{Reason: ReasonOneAtATime, Message: "the host of node " + busy + " is on its way"}
		default:
			busy = d.Hosts[i].Name
			d.out[i] = Decision{Off: true, Hold: model.Hold{Reason: ReasonEmpty, Message: "the node is empty"}}
		}
	}
}

// keepsOn returns why a host that is on stays on. The zero value: it may be powered off.
func (d *decider) keepsOn(i int) model.Hold {
	h := &d.Hosts[i]
	zone := d.Zones[h.Zone]
	switch {
	case h.Closed.Reason != "":
		return h.Closed
	case h.Keeps.Reason != "":
		return h.Keeps
	case d.AllOn.Reason != "":
		return d.AllOn
	case !h.Usable:
		return model.Hold{Reason: ReasonNodeNotReady, Message: "the node is not ready, or takes no pods"}
	case d.Hold.Reason != "":
		return d.Hold
	case h.EmptySince.IsZero() || d.Now.Sub(h.EmptySince) < emptyFor:
		return model.Hold{Reason: ReasonEmptyLately, Message: fmt.Sprintf("it is powered off when the node has been empty for %v", emptyFor)}
	case d.Now.Sub(h.BootedAt) < staysOn:
		return model.Hold{Reason: ReasonBootedLately, Message: fmt.Sprintf("it was powered on less than %v ago", staysOn)}
	case !d.Known:
		return model.Hold{Reason: ReasonForecastBuilds, Message: "what VMs need is not known for half an hour yet"}
	case zone.Room() < 1 || d.usableIn(h.Zone) < 2:
		return model.Hold{Reason: ReasonZone, Message: fmt.Sprintf(
			"%d of %d nodes of zone %q are off or not ready: at most a third may be, and one host of the policy stays on", zone.Down, zone.Nodes, h.Zone)}
	case d.idle()-1 < d.Reserve:
		return model.Hold{Reason: ReasonReserve, Message: fmt.Sprintf("spec.hostPower.reserveNodes of the policy is %d", d.Reserve)}
	case !d.fits(i, spare):
		return model.Hold{Reason: ReasonNeeded, Message: fmt.Sprintf(
			"without it, the hosts that are on would not suffice for %.0f CPUs and %.0f GiB if one fails", d.Forecast.CPUs, float64(d.Forecast.Memory)/(1<<30))}
	}
	return model.Hold{}
}

// usableIn counts the hosts of a zone that VMs can count on.
func (d *decider) usableIn(zone string) (count int) {
	for i := range d.Hosts {
		if d.on[i] && d.Hosts[i].Zone == zone {
			count++
		}
	}
	return count
}

// idle counts the hosts without VMs that VMs can count on.
func (d *decider) idle() (count int) {
	for i := range d.Hosts {
		if d.on[i] && !d.Hosts[i].VMs && d.Hosts[i].Keeps.Reason != ReasonNodeRole {
			count++
		}
	}
	return count
}

// fits returns whether the hosts that VMs can count on, without one of them, suffice for the forecast
// times a factor: each filled as far as it may be, and all but any one filled wholly.
func (d *decider) fits(without int, factor float64) bool {
	var cpus, memory, mostCPUs, mostMemory float64
	for i := range d.Hosts {
		if !d.on[i] || i == without {
			continue
		}
		h := &d.Hosts[i]
		cpus, memory = cpus+float64(h.CPUs), memory+float64(h.Memory)
		mostCPUs, mostMemory = max(mostCPUs, float64(h.CPUs)), max(mostMemory, float64(h.Memory))
	}
	needCPUs, needMemory := factor*float64(d.Forecast.CPUs), factor*float64(d.Forecast.Memory)
	return needCPUs <= d.MaxCPU*cpus && needCPUs <= cpus-mostCPUs && needMemory <= d.MaxMemory*memory && needMemory <= memory-mostMemory
}
