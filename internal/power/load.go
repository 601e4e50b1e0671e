package power

import (
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Load is what a node's power is explained by.
type Load struct {
	// BusyCores is CPU time used by everything on the node.
	BusyCores units.Cores
	// WakeUps is how often threads of VMs were switched in.
	WakeUps units.PerSecond
	// AwakeCores is the number of physical cores that are kept from deep sleep.
	AwakeCores units.Cores
}

// Estimate is a modelled power with its uncertainty.
type Estimate struct {
	Watts units.Watts
	// StdErr is the standard error of Watts.
	StdErr units.Watts
}

// awakeUse is the use from which on a core is interrupted too often to sleep
// deeply: with work for a tenth of the time, gaps are mostly shorter than what
// a deep state takes to pay off (some 100 us to 1 ms).
const awakeUse = 0.1

// AwakeCores estimates how many physical cores are kept from deep sleep: a core
// counts by its busiest sibling's use over a tenth, at most once. CPUs that no
// core has are left out.
func AwakeCores(cpus []model.CPURates, topology model.Topology) units.Cores {
	var awake units.Cores
	at := 0
	for _, core := range topology.Cores {
		var use units.Cores
		for _, cpu := range core.CPUs.CPUs() {
			// Both are in order nearly always: look where the last one was.
			if at = find(cpus, cpu, at); at < len(cpus) && cpus[at].BusyCores > use {
				use = cpus[at].BusyCores
			}
		}
		awake += min(1, use/awakeUse)
	}
	return awake
}

func find(cpus []model.CPURates, cpu, from int) int {
	for step := range cpus {
		if at := (from + step) % len(cpus); cpus[at].CPU == cpu {
			return at
		}
	}
	return len(cpus)
}

// LoadOf returns the load of one round of rates.
func LoadOf(rates *model.NodeRates, topology model.Topology) Load {
	load := Load{AwakeCores: AwakeCores(rates.CPUs, topology)}
	for _, cpu := range rates.CPUs {
		load.BusyCores += cpu.BusyCores
	}
	for i := range rates.VMs {
		load.WakeUps += rates.VMs[i].WakeUps()
	}
	return load
}

// LoadBetween returns the mean load between two readings of an agent's totals,
// and the seconds between them. It returns false when they do not belong
// together, no time lies between, or a total went back.
func LoadBetween(from, to *model.Totals) (Load, float64, bool) {
	if from == nil || to == nil || !from.Since.Equal(to.Since) {
		return Load{}, 0, false
	}
	seconds := to.Seconds - from.Seconds
	if seconds <= 0 {
		return Load{}, 0, false
	}
	load := Load{
		BusyCores:  units.Cores((to.BusyCoreSeconds - from.BusyCoreSeconds) / seconds),
		WakeUps:    units.PerSecond((to.WakeUps - from.WakeUps) / seconds),
		AwakeCores: units.Cores((to.AwakeCoreSeconds - from.AwakeCoreSeconds) / seconds),
	}
	return load, seconds, load.BusyCores >= 0 && load.WakeUps >= 0 && load.AwakeCores >= 0
}
