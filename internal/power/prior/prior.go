// Package prior holds what the studies say of a node and its VMs before
// anything is measured. The figures are in priors.json, which hack/fitpriors
// fits to the published tables and nobody edits; docs/design/energy-priors.md
// tells how well they fit. Their standard deviations are those for a host that
// nothing is known of, wide enough that a node's own measurements soon decide.
package prior

import (
	_ "embed" // for priors.json
	"fmt"
	"math"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/power/curve"
	"github.com/joulevirt/joulevirt/internal/units"
)

//go:embed priors.json
var embedded []byte

// Default returns the priors that the program was built with.
func Default() (Priors, error) {
	p, err := Parse(embedded)
	if err != nil {
		return Priors{}, fmt.Errorf("the built-in priors: %w; run go run ./hack/fitpriors and build again", err)
	}
	return p, nil
}

// Node returns the prior of a node's power. The idle power grows with the number
// of physical cores. What one busy core adds falls with it, for many cores share
// a budget of power, and a busy CPU of a core with siblings is half a core at
// worst and a whole one at best.
func (p Priors) Node(topology model.Topology) power.NodePrior {
	cores, cpus := len(topology.Cores), topology.Online().Len()
	if cores == 0 {
		cores, cpus = p.Study.Cores, p.Study.Cores
	}
	size := float64(cores) / float64(p.Study.Cores)
	perCore := math.Pow(size, -p.Study.CoresExponent.Value)
	siblings := (1 + float64(cores)/float64(max(cpus, cores))) / 2
	at := func(figure func(Figure) float64) power.Coefficients {
		return power.Coefficients{
			Idle:         units.Watts(figure(p.Study.Idle) * size),
			PerBusyCore:  units.Watts(figure(p.Study.PerBusyCore) * perCore * siblings),
			PerWakeUp:    units.Joules(figure(p.Study.PerWakeUp)),
			PerAwakeCore: units.Watts(figure(p.Study.PerAwake) * perCore),
		}
	}
	return power.NodePrior{
		Mean:   at(func(f Figure) float64 { return f.Value }),
		StdDev: at(func(f Figure) float64 { return f.StdDev }),
		// Errors of cores that are independent add up by their squares.
		Noise: units.Watts(p.Study.Noise.Value * math.Sqrt(size)),
	}
}

// Curve returns the prior of a class of VMs at a window of buffering. Classes
// without vhost have no prior of their own: QEMU's userland costs more than
// vhost, but vhost workers that are not seen are not in what is measured.
func (p Priors) Curve(key curve.Key) curve.Prior {
	cores, wakeUps := p.Curves.CoresMore, p.Curves.WakeUpsMore
	if key.Class == curve.ClassOf(1, true) || key.Class == curve.ClassOf(1, false) {
		cores, wakeUps = p.Curves.CoresOne, p.Curves.WakeUpsOne
	}
	kept := p.BufferingEffect(key.Window).Kept()
	prior := curve.Prior{CoresForm: p.Curves.CoresForm.Value, WakeUpsForm: p.Curves.WakeUpsForm.Value}
	prior.Cores, prior.CoresStdDev = cores.scaled(kept)
	prior.WakeUps, prior.WakeUpsStdDev = wakeUps.scaled(kept)
	return prior
}

// scaled returns a curve's terms and their standard deviations. What an idle VM
// costs is not scaled: no packet causes it.
func (c Curve) scaled(by float64) (value, stdDev curve.Terms) {
	for term, figure := range map[int]Figure{
		curve.TermIdle: c.Idle, curve.TermPackets: c.Packets, curve.TermFew: c.Few,
		curve.TermSome: c.Some, curve.TermMany: c.Many, curve.TermBits: c.Bits,
	} {
		value[term], stdDev[term] = figure.Value*by, figure.StdDev*by
	}
	value[curve.TermIdle], stdDev[curve.TermIdle] = c.Idle.Value, c.Idle.StdDev
	return value, stdDev
}

// OnXen returns the priors for a host like the studies' that ran Xen, to compare
// with what they measured there.
func (p Priors) OnXen() Priors {
	for _, c := range []*Curve{&p.Curves.CoresOne, &p.Curves.CoresMore} {
		for _, figure := range []*Figure{&c.Packets, &c.Few, &c.Some, &c.Many, &c.Bits} {
			figure.Value *= p.Curves.Xen.Value
			figure.StdDev *= p.Curves.Xen.Value
		}
	}
	return p
}

// Effect is the share of some dynamic power, CPU time or wake-ups that a lever
// saves, from 0 to 1, with its standard error.
type Effect struct {
	Share, StdErr float64
}

// Kept is the share that remains.
func (e Effect) Kept() float64 { return 1 - e.Share }

// AffinityEffect returns what pinning vCPUs to cores of their own saves of the
// dynamic power of their VMs, against letting them run anywhere.
func (p Priors) AffinityEffect() Effect {
	return Effect{Share: p.Affinity.Pinned.Value, StdErr: p.Affinity.Pinned.StdDev}
}

// SeparationEffect returns what keeping VMs on a part of the cores saves of their
// dynamic power, against letting them run anywhere. The studies rank it between
// running anywhere and pinning, without a figure.
func (p Priors) SeparationEffect() Effect {
	return Effect{Share: p.Affinity.Separated.Value, StdErr: p.Affinity.Separated.StdDev}
}

// BufferingEffect returns what a window saves of the CPU time and the wake-ups
// that a VM's traffic causes, at a rate that fills the window.
func (p Priors) BufferingEffect(window time.Duration) Effect {
	if window <= 0 {
		return Effect{}
	}
	us := min(float64(window)/float64(time.Microsecond), p.Buffering.Longest.Value)
	saturation := us / (us + p.Buffering.Half.Value)
	return Effect{Share: p.Buffering.Most.Value * saturation, StdErr: p.Buffering.Most.StdDev * saturation}
}
