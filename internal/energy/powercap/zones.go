package powercap

import (
	"cmp"
	"strings"

	"github.com/joulevirt/joulevirt/internal/host"
)

// mainDriver is what Intel's and AMD's processors are read with. Others, such
// as intel-rapl-mmio, show counters of the same packages once more.
const mainDriver = "intel-rapl"

// groups are the zones that are of use, each in the order of its IDs.
type groups struct {
	platform, packages []host.EnergyZone
	// all is the number of zones, those of no use included.
	all int
}

// sortZones takes the zones of one driver: the main one where it has packages
// or the platform, else the first that has.
func sortZones(zones []host.EnergyZone) groups {
	driver := ""
	for _, zone := range zones {
		if kind := kindOf(zone); kind == packageZone || kind == platformZone {
			if of := driverOf(zone); of == mainDriver {
				driver = of
			} else {
				driver = cmp.Or(driver, of)
			}
		}
	}
	found := groups{all: len(zones)}
	for _, zone := range zones {
		if driverOf(zone) != driver {
			continue
		}
		switch kindOf(zone) {
		case packageZone:
			found.packages = append(found.packages, zone)
		case platformZone:
			found.platform = append(found.platform, zone)
		}
	}
	return found
}

type kind int

const (
	otherZone kind = iota
	packageZone
	platformZone
)

// kindOf goes by the names that drivers/powercap/intel_rapl_common.c gives:
// package-N or package-N-die-M, core, uncore, dram, psys. The psys-N of further
// packages is the platform's counter once more. A zone whose name could not be
// read is one of a package by its ID, DRIVER:N, because a package that is left
// out would be worse.
func kindOf(zone host.EnergyZone) kind {
	switch {
	case strings.HasPrefix(zone.Name, "package-"):
		return packageZone
	case zone.Name == "psys":
		return platformZone
	case zone.Name == "" && zone.Err != nil && strings.Count(zone.ID, ":") == 1:
		return packageZone
	default:
		return otherZone
	}
}

func driverOf(zone host.EnergyZone) string {
	driver, _, _ := strings.Cut(zone.ID, ":")
	return driver
}

// countPackages counts packages, whose dies may have a zone each.
func countPackages(zones []host.EnergyZone) int {
	seen := map[string]bool{}
	for _, zone := range zones {
		name, _, _ := strings.Cut(cmp.Or(zone.Name, zone.ID), "-die-")
		seen[name] = true
	}
	return len(seen)
}
