package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Shape is the arrangement of a host's CPUs. A field that is 0 counts as 1,
// except CoresPerLLC, where 0 means that a package has one last-level cache.
type Shape struct {
	Packages, NUMAPerPackage, CoresPerPackage, CoresPerLLC, ThreadsPerCore int
	// EfficiencyCores are how many of a package's cores, its last ones, are slow and
	// frugal. 0 means that all are alike.
	EfficiencyCores int
}

// Effect is something that changes a host's power, or what its meter shows,
// and that the product's model of power does not know.
type Effect uint

// The hidden effects. They are on unless Config.Off has them.
const (
	// Frequency: clock and voltage rise with a core's use, and the highest clock
	// falls with the number of active cores. Off: every busy core draws the same.
	Frequency Effect = 1 << iota
	// IdleStates: how deep a core sleeps depends on its own wake-ups. Off: it
	// sleeps deeply whenever it is idle.
	IdleStates
	// PackageSleep: shared parts sleep while all cores do. Off: never.
	PackageSleep
	// Temperature: leakage follows the temperature, which follows the power and
	// the room. Off: the temperature is constant.
	Temperature
	// Instructions: work of different kinds costs different energy per second.
	// Off: all work costs the same.
	Instructions
	// MeterNoise: the meter errs at random. Off: it does not.
	MeterNoise
	// MeterSteps: the meter counts in steps and publishes once a millisecond.
	// Off: it shows microjoules of now.
	MeterSteps
)

// AllEffects are all hidden effects.
const AllEffects = Frequency | IdleStates | PackageSleep | Temperature | Instructions | MeterNoise | MeterSteps

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
	// Isolated CPUs run only what is bound to them.
	Isolated units.CPUSet
	// Exclusive and Reserved CPUs are shown as such: the scheduler knows nothing of
	// them.
	Exclusive, Reserved units.CPUSet
	// NICs are shown. Packets take the same time on all CPUs.
	NICs []model.NIC
	// NoSlices is a kernel before Linux 6.12, whose threads have no slices of their
	// own.
	NoSlices bool
	// VhostWorkers is a kernel before Linux 6.4, whose vhost threads are the kernel's
	// own, each a process of itself.
	VhostWorkers bool
	// NoBuffering is a kernel that cannot hold packets.
	NoBuffering bool
	// FreePhases has the windows of each VM begin at times of their own, unlike those of
	// the product: to see what a common grid is worth.
	FreePhases bool
	// Nested hosts are VMs. They have no counters of energy, and what hosts them
	// takes Stolen, a share from 0 to 1, of their CPUs' time on average, of
	// which they see only a part.
	Nested bool
	Stolen float64
	Meter  Meter
	// Physics of the host. Nil: KVM().
	Physics *Physics
	// Off are the hidden effects that are switched off.
	Off Effect
	// Harm is what levers cost on this host that nobody foresees.
	Harm Harm
	// PIDMax is the largest process number; small ones are given again sooner.
	// 0: 32768, Linux's default.
	PIDMax int
}

// Harm is by how much the power of all packages rises, relative, while a lever acts on at
// least one VM. Below 0 it falls. It stands for whatever a lever could do on some machine
// that neither this simulator nor the product's model knows of.
type Harm struct{ Affinity, Slice, Shaping, Buffering, TrafficShare float64 }

const (
	defaultPIDMax = 32768
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
	if c.PIDMax == 0 {
		c.PIDMax = defaultPIDMax
	}
	if c.Step == 0 {
		c.Step = defaultStep
	}
	if c.Meter.Range == 0 {
		c.Meter.Range = defaultRange
	}
	const fewest = 300 // the first numbers belong to the system
	cpus := s.Packages * s.CoresPerPackage * s.ThreadsPerCore
	switch {
	case c.Name == "":
		return errors.New("simulated host without a name")
	case min(s.Packages, s.NUMAPerPackage, s.CoresPerPackage, s.ThreadsPerCore, s.CoresPerLLC) < 1 || s.ThreadsPerCore > 2 || cpus > units.MaxCPUs:
		return fmt.Errorf("simulated host %s: shape %+v is not possible: all counts must be positive, with 1 or 2 threads a core and %d CPUs at most", c.Name, *s, units.MaxCPUs)
	case s.EfficiencyCores < 0 || s.EfficiencyCores >= s.CoresPerPackage && s.EfficiencyCores > 0:
		return fmt.Errorf("simulated host %s: %d efficiency cores of %d are not possible: some must be others", c.Name, s.EfficiencyCores, s.CoresPerPackage)
	case !(c.Stolen >= 0 && c.Stolen < 1) || (c.Stolen > 0 && !c.Nested):
		return fmt.Errorf("simulated host %s: stolen share %v must be from 0 to below 1, and needs Nested", c.Name, c.Stolen)
	case !c.Harm.possible():
		return fmt.Errorf("simulated host %s: harm %+v is not possible: each must be from -0.5 to 10", c.Name, c.Harm)
	case c.Step < 0 || c.Step > mostStep:
		return fmt.Errorf("simulated host %s: steps of %v are not possible: must be from 0s to %v", c.Name, c.Step, mostStep)
	case c.PIDMax <= fewest:
		return fmt.Errorf("simulated host %s: PIDMax %d must be above %d", c.Name, c.PIDMax, fewest)
	}
	return nil
}

// topology numbers CPUs as Linux does on most machines: first one of each
// core, then their siblings.
func (c *Config) topology() model.Topology {
	s := c.Shape
	cores := s.Packages * s.CoresPerPackage
	t := model.Topology{Nested: c.Nested, CPUModel: "simulated " + c.CPUModel}
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
			Class:    s.class(within),
		})
	}
	online := t.Online()
	t.Isolated, t.Exclusive, t.Reserved = c.Isolated.Intersection(online), c.Exclusive.Intersection(online), c.Reserved.Intersection(online)
	t.NICs = slices.Clone(c.NICs)
	deep := time.Duration(c.Physics.Power.DeepAfter * float64(time.Second))
	t.IdleStates = []model.IdleState{{Name: "C1"}, {Name: "C6", ExitLatency: deep / 2, TargetResidency: deep}}
	if c.Off&Frequency == 0 {
		// What a machine shows of them is the range, and not when it is used.
		p := &c.Physics.Power
		t.Clocks = model.Clocks{
			Governor: "simulated", FollowLoad: true, Base: nominal,
			Lowest: nominal * units.Megahertz(p.Slowest), Highest: nominal * units.Megahertz(p.Fastest),
		}
	}
	return t
}

// nominal is the clock that hosts show for that of the physics.
const nominal units.Megahertz = 3000

// class of a package's core.
func (s *Shape) class(within int) model.CoreClass {
	switch {
	case s.EfficiencyCores == 0:
		return ""
	case within >= s.CoresPerPackage-s.EfficiencyCores:
		return model.CoreEfficiency
	default:
		return model.CorePerformance
	}
}
