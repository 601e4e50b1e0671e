package placement

import (
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/power"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// shutsDown and boots are how long that takes, in minutes. The host draws power meanwhile.
	shutsDown, boots = 3, 6
	start            = 1767225600 // seconds since 1970
)

// poweredHosts are the hosts of a simulated day, all in one zone.
type poweredHosts struct {
	hosts   []power.Host
	since   []int // minute of the host's state
	history power.History
}

func newHosts(p *Problem) *poweredHosts {
	h := &poweredHosts{since: make([]int, len(p.Nodes))}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		h.hosts = append(h.hosts, power.Host{Name: n.Name, State: v1alpha1.HostOn, Usable: true, CPUs: n.CPUs, Memory: n.Allocatable.Memory, Boot: boots * time.Minute})
	}
	return h
}

func at(minute int) time.Time { return time.Unix(start+int64(minute)*60, 0).UTC() }

// step powers hosts off and on as is decided for a minute.
func (h *poweredHosts) step(minute int, p *Problem) {
	now := at(minute)
	var demand power.Demand
	vms := make([]int, len(h.hosts))
	for i := range p.VMs {
		v := &p.VMs[i]
		demand.CPUs, demand.Memory = demand.CPUs+v.P95, demand.Memory+v.Requests.Memory
		vms[v.Node]++
	}
	h.history.Add(now, demand)
	problem := power.Problem{Now: now, Zones: map[string]power.Zone{}, Reserve: 1, MaxCPU: p.Limits.MaxCPU, MaxMemory: p.Limits.MaxMemory}
	problem.Forecast, problem.Known = h.history.Forecast(now, power.Ahead(boots*time.Minute))
	zone := power.Zone{Nodes: len(h.hosts)}
	for i := range h.hosts {
		host := &h.hosts[i]
		switch took := minute - h.since[i]; {
		case host.State == v1alpha1.HostShuttingDown && took >= shutsDown:
			h.enter(i, v1alpha1.HostOff, minute)
		case host.State == v1alpha1.HostPoweringOn && took >= boots:
			h.enter(i, v1alpha1.HostOn, minute)
			host.BootedAt = now
		}
		host.Keeps, host.VMs = model.Hold{}, vms[i] > 0
		if host.Usable = host.State == v1alpha1.HostOn; vms[i] > 0 {
			host.Keeps, host.EmptySince = model.Hold{Reason: power.ReasonVMs}, time.Time{}
		} else if host.EmptySince.IsZero() {
			host.EmptySince = now
		}
		if !host.Usable {
			zone.Down++
		}
	}
	problem.Zones[""], problem.Hosts = zone, h.hosts
	for i, d := range power.Decide(problem) {
		switch state := h.hosts[i].State; {
		case d.On && (state == v1alpha1.HostOff || state == v1alpha1.HostShuttingDown):
			h.enter(i, v1alpha1.HostPoweringOn, minute)
		case d.Off && state == v1alpha1.HostOn:
			h.enter(i, v1alpha1.HostShuttingDown, minute)
		}
	}
}

func (h *poweredHosts) enter(i int, state v1alpha1.HostState, minute int) {
	h.hosts[i].State, h.since[i] = state, minute
}

// BenchmarkPowerDay plays the same days with hosts that are powered off while their nodes are empty.
// Figures are means, but for service, which is of the worst fleet.
func BenchmarkPowerDay(b *testing.B) {
	for b.Loop() {
		var saved, moved []float64
		broken := 0.0
		for seed := range uint64(fleets) {
			d := newDay(seed+1, 24, 20)
			still, _, _ := d.run(func(int, []int) []Move { return nil }, nil)
			hosts := newHosts(d.problem(0, measured))
			joules, lacking, moves := d.run(d.place(DefaultPace(), hosts, freedom{}, 1), hosts)
			saved, broken = append(saved, 100*(still-joules)/still), max(broken, 100*lacking)
			moved = append(moved, moves)
		}
		center, standardError := spread(saved)
		b.Logf("by fleet, %.1f %% are saved (standard error %.1f) with %.2f moves per VM", saved, standardError, moved)
		b.Logf("figure placement_host_power_saving_pct %.1f percent (simulated)", center)
		b.Logf("figure placement_host_power_broken_pct %.3f percent (simulated)", broken)
	}
}

// close closes the nodes whose hosts are not on: they are cordoned. A third may be off.
func (h *poweredHosts) close(p *Problem) {
	p.Off = &Off{Reserve: 1, Zones: map[string]int{"": len(h.hosts) / 3}}
	for i := range p.Nodes {
		p.Nodes[i].PowersDown = true
		if h.hosts[i].State != v1alpha1.HostOn {
			p.Nodes[i].Closed = v1alpha1.ReasonNodeFrozen
		}
	}
}

// draw is what a node draws with busy CPUs, by its host's state.
func (h *poweredHosts) draw(node int, busy float64) units.Watts {
	if h != nil && h.hosts[node].State == v1alpha1.HostOff {
		return 0
	}
	n := newNode("")
	n.Mean, n.Awake = units.Cores(busy), min(n.Cores, units.Cores(5*busy))
	return newState(&Problem{Nodes: []Node{n}}).total()
}
