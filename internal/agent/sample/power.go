package sample

import (
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Watts is the node's power between two readings of its energy counters: that
// of the whole platform (psys) where the node has it, else of its packages. The
// zones within a package are parts of it and are not added. It returns false
// when the readings do not tell.
func Watts(previous, current []host.EnergyZone, elapsed time.Duration) (units.Watts, bool) {
	if elapsed < shortest {
		return 0, false
	}
	for _, kind := range []string{"psys", "package"} {
		if joules, found := energy(kind, previous, current); found {
			return units.Watts(float64(joules) / elapsed.Seconds()), true
		}
	}
	return 0, false
}

func energy(kind string, previous, current []host.EnergyZone) (units.Joules, bool) {
	const microjoules = 1e6
	var sum units.Joules
	found := false
	for i, zone := range current {
		if !strings.HasPrefix(zone.Name, kind) {
			continue
		}
		if i >= len(previous) || previous[i].Name != zone.Name {
			return 0, false
		}
		used := zone.Microjoules - previous[i].Microjoules
		if zone.Microjoules < previous[i].Microjoules { // it started over
			if zone.Range < previous[i].Microjoules {
				return 0, false
			}
			used = zone.Range - previous[i].Microjoules + zone.Microjoules
		}
		sum += units.Joules(float64(used) / microjoules)
		found = true
	}
	return sum, found
}
