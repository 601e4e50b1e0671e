// Package prior holds what the studies say of a node and its VMs before
// anything is measured. The figures are in priors.json, each with its source and
// how far it misses that. Their standard deviations are those for a host that
// nothing is known of, wide enough that a node's own measurements soon decide.
package prior

import (
	_ "embed" // for priors.json
	"encoding/json"
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

// Priors is the file of priors.
type Priors struct {
	Curves struct {
		// Cores and WakeUps are what a VM on KVM costs without buffering.
		Cores   Curve `json:"cores"`
		WakeUps Curve `json:"wakeUps"`
		// CoresForm and WakeUpsForm are the relative errors of the form of curve: what
		// the fit misses of published totals, for its degrees of freedom.
		CoresForm   Figure `json:"coresForm"`
		WakeUpsForm Figure `json:"wakeUpsForm"`
	} `json:"curves"`
	// Study is the power of a host like the studies'.
	Study struct {
		// Cores is its number of physical cores.
		Cores       int    `json:"cores"`
		Idle        Figure `json:"idle"`
		PerBusyCore Figure `json:"perBusyCore"`
		PerWakeUp   Figure `json:"perWakeUp"`
		PerAwake    Figure `json:"perAwakeCore"`
		// Noise is the standard deviation of a measured power around the model.
		Noise Figure `json:"noise"`
		// CoresExponent is how PerBusyCore depends on the number of cores n: it
		// falls with n to the power of it.
		CoresExponent Figure `json:"coresExponent"`
	} `json:"node"`
	// Buffering is the share of a VM's dynamic cost that a window w saves:
	// Most * w / (w + Half).
	Buffering struct {
		Most Figure `json:"most"`
		Half Figure `json:"halfWindow"`
		// Longest is the longest window that was measured: a longer one counts as
		// this.
		Longest Figure `json:"longestWindow"`
	} `json:"buffering"`
	// Affinity is the share of VMs' dynamic power that is saved by pinning each vCPU to
	// a core, and by keeping VMs on a part of the cores.
	Affinity struct {
		Pinned    Figure `json:"pinned"`
		Separated Figure `json:"separated"`
	} `json:"affinity"`
}

// Figure is one parameter.
type Figure struct {
	Value float64 `json:"value"`
	// StdDev is the standard deviation of Value for a host that nothing was
	// measured of, which is much more than the error of the fit.
	StdDev float64 `json:"stdDev"`
	Unit   string  `json:"unit"`
	// Source is the published table that the figure was fitted to, and how far it
	// misses that, or why it was chosen.
	Source string `json:"source"`
}

// Curve is a curve's terms, see curve.Terms.
type Curve struct {
	Idle    Figure `json:"idle"`
	Packets Figure `json:"packets"`
	Few     Figure `json:"few"`
	Some    Figure `json:"some"`
	Many    Figure `json:"many"`
	Bits    Figure `json:"bits"`
}

// Default returns the priors that the program was built with.
func Default() (Priors, error) {
	var p Priors
	if err := json.Unmarshal(embedded, &p); err != nil {
		return Priors{}, fmt.Errorf("the built-in priors: %w", err)
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
	kept := p.BufferingEffect(key.Window).Kept()
	prior := curve.Prior{CoresForm: p.Curves.CoresForm.Value, WakeUpsForm: p.Curves.WakeUpsForm.Value}
	prior.Cores, prior.CoresStdDev = p.Curves.Cores.scaled(kept)
	prior.WakeUps, prior.WakeUpsStdDev = p.Curves.WakeUps.scaled(kept)
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
