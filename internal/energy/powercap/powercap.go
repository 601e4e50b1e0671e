// Package powercap turns the energy counters of a node (RAPL, as Linux shows it
// in /sys/class/powercap) into the node's power. It reads nothing itself: its
// input are the zones of host.Host.
//
// The platform's counter (psys) is preferred; without it, the counters of all
// packages are summed. Zones within a package, such as core and uncore, are
// parts of it and are never added, nor is memory.
package powercap

import (
	"errors"
	"io/fs"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Source of the readings.
const Source = v1alpha1.PowerRAPL

const (
	// mostPackageWatts is four times the rated power of the largest packages of
	// today (500 W): bursts stay below twice of it.
	mostPackageWatts units.Watts = 2000
	// mostPlatformWatts is above machines with eight packages and accelerators.
	mostPlatformWatts units.Watts = 20_000
	// patience is for how many readings in a row a platform's counter may be of
	// no use, while those of the packages are, before it is given up: on many
	// machines psys is there, and connected to nothing.
	patience = 10
	// partOfPlatform is how much of what the packages draw the platform has to
	// show at least. It is all of it; the rest is for counters that are not read
	// in the same moment.
	partOfPlatform = 0.8
)

// Counters are a node's energy counters at one moment.
type Counters struct {
	// Zones and Err are what host.Host's EnergyZones returned.
	Zones []host.EnergyZone
	Err   error
	// Time is when they were read.
	Time time.Time
}

// Reading is what was used between two readings of the counters.
type Reading struct {
	// Power has the source RAPL.
	Power model.Power
	// Joules are Power over its interval.
	Joules units.Joules
}

// Meter follows the counters of one node. The zero value is ready. It is not
// for concurrent use.
type Meter struct {
	platform, packages gauge
	// hasPlatform is true once there was a counter of the platform.
	hasPlatform bool
	// useless counts readings in a row in which the platform's counter was of no
	// use and those of the packages were. At patience it stays.
	useless int
}

// Read returns the power since the last reading that was of use. packages is
// how many packages have CPUs that are online: a sum over fewer of them would
// be taken for a saving. The Refusal says what to do.
func (m *Meter) Read(now Counters, packages int) (Reading, *energy.Refusal) {
	if now.Err != nil {
		return Reading{}, refuse(now.Err)
	}
	found := sortZones(now.Zones)
	sum, refusal := m.readPackages(found, now.Time, packages)
	m.hasPlatform = m.hasPlatform || len(found.platform) > 0
	if !m.hasPlatform || m.useless >= patience {
		return sum, refusal
	}
	all, why := m.readPlatform(found, now.Time)
	if why == nil && refusal == nil {
		why = compare(found.platform[0], all.Power.Watts, sum.Power.Watts)
	}
	switch {
	case why == nil:
		m.useless = 0
		return all, nil
	case refusal == nil && why.Reason != energy.ReasonAwaiting:
		m.useless++
	}
	if m.useless >= patience {
		return sum, nil
	}
	return Reading{}, why
}

// compare refuses a platform that draws less than its packages.
func compare(platform host.EnergyZone, watts, packages units.Watts) *energy.Refusal {
	if watts >= partOfPlatform*packages {
		return nil
	}
	return energy.Refuse(energy.ReasonImplausible, "energy counter %s (psys) shows %.1f W where the packages draw %.1f W: it is connected to nothing",
		platform.ID, float64(watts), float64(packages))
}

func (m *Meter) readPlatform(found groups, at time.Time) (Reading, *energy.Refusal) {
	if len(found.platform) == 0 {
		return Reading{}, energy.Refuse(energy.ReasonNoCounters, "the energy counter of the platform (psys) is gone: load its module again, such as intel_rapl_msr")
	}
	return m.platform.read(found.platform, at, v1alpha1.PowerScopePlatform, mostPlatformWatts)
}

func (m *Meter) readPackages(found groups, at time.Time, packages int) (Reading, *energy.Refusal) {
	sum, refusal := m.packages.read(found.packages, at, v1alpha1.PowerScopePackage, mostPackageWatts)
	switch counted := countPackages(found.packages); {
	case counted == 0:
		return Reading{}, energy.Refuse(energy.ReasonNoCounters, "none of the %d energy counters is that of a package or of the platform: "+
			"load the processor's module, such as intel_rapl_msr", found.all)
	case counted < packages:
		return Reading{}, energy.Refuse(energy.ReasonNoCounters, "%d of %d packages have an energy counter: a sum without the others would "+
			"look like a saving; load the processor's module again, such as intel_rapl_msr", counted, packages)
	}
	return sum, refusal
}

// refuse says why counters cannot be read.
func refuse(err error) *energy.Refusal {
	switch {
	case errors.Is(err, host.ErrUnsupported):
		return energy.Refuse(energy.ReasonNoCounters, "%v", err)
	case errors.Is(err, fs.ErrPermission):
		return energy.Refuse(energy.ReasonPermission, "%v: the agent must be root, outside of a user namespace", err)
	default:
		return energy.Refuse(energy.ReasonUnreachable, "%v: look at the kernel's log", err)
	}
}
