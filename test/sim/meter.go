package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"

	"github.com/joulevirt/joulevirt/internal/host"
)

const (
	// step is Intel's unit of energy, 2^-16 J, in microjoules.
	step = 1e6 / 65536
	// publishing is how often the counters are brought up to date, in seconds.
	publishing = 1e-3
	// noise is the meter's random error of one second's energy, relative.
	noise = 0.003
)

// energy is what was used, in joules since the host's start: in truth, and as
// the meter counts it.
type energy struct {
	packages []float64
	platform float64
	// Of the last call of Advance.
	joules, dramJoules, platformJoules, seconds float64

	zones []zone
	// rng of the meter's errors: they change nothing else.
	rng rand.PCG
}

// zone is one counter.
type zone struct {
	id, name string
	// microjoules from 0 to the range, and how many a second the last step added.
	microjoules, rate float64
	// lag is how old the figure shown is, within a millisecond.
	lag float64
	// watts of the step.
	watts float64
}

func newEnergy(cfg *Config, rng *rand.PCG) energy {
	e := energy{packages: make([]float64, cfg.Shape.Packages), rng: *rand.NewPCG(rng.Uint64(), rng.Uint64())}
	if cfg.Meter.Absent {
		return e
	}
	start := func() float64 { return uniform(rng) * float64(cfg.Meter.Range) }
	for pkg := range e.packages {
		id := "intel-rapl:" + strconv.Itoa(pkg)
		e.zones = append(e.zones, zone{id: id, name: "package-" + strconv.Itoa(pkg), microjoules: start()})
		if cfg.Meter.DRAM {
			e.zones = append(e.zones, zone{id: id + ":0", name: "dram", microjoules: start()})
		}
	}
	if cfg.Meter.Platform {
		e.zones = append(e.zones, zone{id: "intel-rapl:" + strconv.Itoa(len(e.packages)), name: "psys", microjoules: start()})
	}
	return e
}

func (e *energy) begin() { e.joules, e.dramJoules, e.platformJoules, e.seconds = 0, 0, 0, 0 }

// add books the power of a step.
func (e *energy) add(watts []float64, dram, platform, dt float64) {
	pkg := 0
	for i, w := range watts {
		e.packages[i] += w * dt
		e.joules += w * dt
	}
	e.dramJoules += dram * dt
	e.platformJoules += platform * dt
	e.platform += platform * dt
	e.seconds += dt
	for i := range e.zones {
		z := &e.zones[i]
		switch z.name {
		case "dram":
			z.watts = dram / float64(len(watts))
		case "psys":
			z.watts = platform
		default:
			z.watts = watts[pkg]
			pkg++
		}
	}
}

// meter lets the counters count a step.
func (h *Host) meter(dt float64) {
	e := &h.energy
	wrap := float64(h.cfg.Meter.Range)
	const micro = 1e6
	for i := range e.zones {
		z := &e.zones[i]
		z.rate = micro * z.watts * (1 + noise/math.Sqrt(dt)*normal(&e.rng))
		z.microjoules = math.Mod(z.microjoules+z.rate*dt, wrap)
		z.lag = publishing * uniform(&e.rng)
	}
}

// EnergyZones implements host.Host.
func (h *Host) EnergyZones() ([]host.EnergyZone, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.energy.zones) == 0 {
		return nil, fmt.Errorf("no energy counters: simulated host %s has none: %w", h.cfg.Name, host.ErrUnsupported)
	}
	list := make([]host.EnergyZone, len(h.energy.zones))
	for i := range list {
		z := &h.energy.zones[i]
		list[i] = host.EnergyZone{ID: z.id, Name: z.name, Range: h.cfg.Meter.Range, Microjoules: z.shown(float64(h.cfg.Meter.Range))}
	}
	return list, nil
}

// shown is what can be read of a counter: whole steps, as of the last time that
// it was published.
func (z *zone) shown(wrap float64) uint64 {
	at := math.Mod(z.microjoules-z.rate*z.lag+wrap, wrap)
	return uint64(math.Floor(at/step) * step)
}
