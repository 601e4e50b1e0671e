package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Shape is the arrangement of a host's CPUs. A field that is 0 counts as 1,
// except CoresPerLLC, where 0 means that a package has one last-level cache.
type Shape struct {
	Packages, NUMAPerPackage, CoresPerPackage, CoresPerLLC, ThreadsPerCore int
}

// Meter says what energy counters a host has.
type Meter struct {
	// Absent hosts have none at all.
	Absent bool
	// DRAM and Platform add the zones dram and psys to those of the packages.
	DRAM, Platform bool
	// Range at which counters start over, in microjoules. 0: 262143328850, the
	// range of Intel's.
	Range uint64
}

// Config describes a host. The zero value of every field but Name is usable.
type Config struct {
	// Name of the host. Two hosts of one seed differ when their names do.
	Name string
	Seed uint64
	// Start is the time at which the host is built, having been up for a day.
	Start time.Time
	// Step is the longest step, in which all is taken as constant. 0: a second, which is
	// what every figure is of that does not say otherwise.
	Step  time.Duration
	Shape Shape
	// CPUModel is shown after the word "simulated".
	CPUModel string
	// NoSlices is a kernel before Linux 6.12, whose threads have no slices of their
	// own.
	NoSlices bool
	// ShallowSleep has CPUs without work sleep in C1 only, although C6 exists.
	ShallowSleep bool
	Meter        Meter
	// Physics of the host. Nil: KVM().
	Physics *Physics
	// Harm is what levers cost on this host that nobody foresees.
	Harm Harm
}

// Harm is by how much the power of all packages rises, relative, while lever Affinity acts on
// at least one VM. It stands for whatever a lever could do on some machine that neither this
// simulator nor the product's model knows of.
type Harm struct{ Affinity float64 }

const (
	// mostPID is the largest process number: Linux's default.
	mostPID = 32768
	// defaultStep is the longest step, and mostStep what may be asked for: temperatures
	// and loads would move too far within a longer one.
	defaultStep, mostStep = time.Second, 30 * time.Second
	// defaultRange is max_energy_range_uj of Intel's packages: 2^32 steps of
	// 61 microjoules.
	defaultRange = 262143328850
	// uptimeAtStart makes start times of tasks unlike small numbers.
	uptimeAtStart = 24 * time.Hour
)

func (c *Config) complete() error {
	s := &c.Shape
	for _, n := range []*int{&s.Packages, &s.NUMAPerPackage, &s.CoresPerPackage, &s.ThreadsPerCore} {
		if *n == 0 {
			*n = 1
		}
	}
	if s.CoresPerLLC == 0 {
		s.CoresPerLLC = s.CoresPerPackage
	}
	if c.Physics == nil {
		c.Physics = KVM()
	}
	if c.Step == 0 {
		c.Step = defaultStep
	}
	if c.Meter.Range == 0 {
		c.Meter.Range = defaultRange
	}
	cpus := s.Packages * s.CoresPerPackage * s.ThreadsPerCore
	switch {
	case c.Name == "":
		return errors.New("simulated host without a name")
	case min(s.Packages, s.NUMAPerPackage, s.CoresPerPackage, s.ThreadsPerCore, s.CoresPerLLC) < 1 || s.ThreadsPerCore > 2 || cpus > units.MaxCPUs:
		return fmt.Errorf("simulated host %s: shape %+v is not possible: all counts must be positive, with 1 or 2 threads a core and %d CPUs at most", c.Name, *s, units.MaxCPUs)
	case c.Step < 0 || c.Step > mostStep:
		return fmt.Errorf("simulated host %s: steps of %v are not possible: must be from 0s to %v", c.Name, c.Step, mostStep)
	}
	return nil
}

// topology numbers CPUs as Linux does on most machines: first one of each
// core, then their siblings.
func (c *Config) topology() model.Topology {
	s := c.Shape
	cores := s.Packages * s.CoresPerPackage
	t := model.Topology{CPUModel: "simulated " + c.CPUModel}
	perNUMA := max(1, s.CoresPerPackage/s.NUMAPerPackage)
	llcs := (s.CoresPerPackage + s.CoresPerLLC - 1) / s.CoresPerLLC
	for core := range cores {
		pkg, within := core/s.CoresPerPackage, core%s.CoresPerPackage
		cpus := units.NewCPUSet(core)
		if s.ThreadsPerCore > 1 {
			cpus = units.NewCPUSet(core, core+cores)
		}
		t.Cores = append(t.Cores, model.Core{
			CPUs: cpus, Package: pkg,
			NUMANode: pkg*s.NUMAPerPackage + min(within/perNUMA, s.NUMAPerPackage-1),
			LLC:      pkg*llcs + within/s.CoresPerLLC,
		})
	}
	t.DeepestIdle = "C6"
	// What a machine shows of its clocks is the range, and not when it is used.
	p := &c.Physics.Power
	t.Clocks = model.Clocks{
		Governor: "simulated", FollowLoad: true, Base: nominal,
		Lowest: nominal * units.Megahertz(p.Slowest), Highest: nominal * units.Megahertz(p.Fastest),
	}
	return t
}

// nominal is the clock that hosts show for that of the physics.
const nominal units.Megahertz = 3000
