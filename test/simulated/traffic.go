package simulated

import (
	"fmt"
	"time"

	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/sim"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Senders is a simulated host with equal VMs that send, as those of the study.
type Senders struct {
	Name    string
	Seed    uint64
	Shape   sim.Shape
	Physics func() *sim.Physics
	// VMs with one vCPU each, and the traffic that they send together.
	VMs   int
	Total units.BitsPerSecond
}

// StudiedHosts are hosts with the study's traffic: five VMs that send 900 Mbit/s.
// The first two are calibrated to its tables; the third is of the size that runs
// VMs.
func StudiedHosts(seed uint64) []Senders {
	const vms, total, cores = 5, 900 * mbit, 16
	study := sim.Shape{CoresPerPackage: 4}
	return []Senders{
		{"KVM", seed, study, sim.KVM, vms, total},
		{"Xen", seed, study, sim.Xen, vms, total},
		{"server", seed, sim.Shape{CoresPerPackage: cores, ThreadsPerCore: 2}, func() *sim.Physics { return sim.Server(cores) }, vms, total},
	}
}

// host returns a host whose VMs run and send nothing.
func (s Senders) host() (*sim.Host, []sim.VM, error) {
	h, err := sim.NewHost(sim.Config{
		Name: s.Name, Seed: s.Seed, Start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		Shape: s.Shape, Physics: s.Physics(), CPUModel: s.Name, Meter: sim.Meter{DRAM: true, Platform: true},
	})
	if err != nil {
		return nil, nil, err
	}
	vms := make([]sim.VM, s.VMs)
	for i := range vms {
		vms[i] = sim.VM{Namespace: "simulated", Name: fmt.Sprintf("vm-%d", i), VCPUs: 1, PodUID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i)}
		if _, err := h.AddVM(vms[i]); err != nil {
			return nil, nil, err
		}
	}
	return h, vms, nil
}

// Drawn is what a host draws with its VMs' traffic split in some way.
type Drawn struct {
	Rates   []units.BitsPerSecond
	Sigma   units.BitsPerSecond
	Talkers float64
	// Packages and Platform are mean powers of the simulated truth.
	Packages, Platform units.Watts
	// Served is the least part of a VM's traffic that was handled.
	Served float64
}

// settling is the time in which the temperature settles, and measuring the time
// after it over which power is a mean.
const settling, measuring = 10 * time.Minute, 30 * time.Minute

// Draw lets the VMs send at constant rates and returns what that draws. Equal
// hosts draw the same with equal rates.
func (s Senders) Draw(rates []units.BitsPerSecond) (Drawn, error) {
	h, vms, err := s.host()
	if err != nil {
		return Drawn{}, err
	}
	for i, vm := range vms {
		if err := h.SetTraffic(vm.PodUID, sim.Traffic{FromVM: rates[i]}); err != nil {
			return Drawn{}, err
		}
	}
	h.Advance(settling)
	h.Advance(measuring)
	truth := h.Truth()
	drawn := Drawn{
		Rates: rates, Sigma: power.Sigma(rates), Talkers: power.EffectiveTalkers(rates),
		Packages: truth.Packages, Platform: truth.Platform, Served: 1,
	}
	for i, vm := range vms {
		of, err := h.VMTruth(vm.PodUID)
		if err != nil {
			return Drawn{}, err
		}
		if rates[i] > 0 {
			drawn.Served = min(drawn.Served, of.Served)
		}
	}
	return drawn, nil
}

// StudiedSplits are the splits of the study's table for five VMs and 900 Mbit/s,
// the balanced one first, and one VM that has all.
func StudiedSplits() [][]units.BitsPerSecond {
	splits := [][]units.BitsPerSecond{
		{180, 180, 180, 180, 180}, {150, 150, 200, 200, 200}, {100, 100, 200, 200, 300}, {50, 50, 200, 300, 300},
		{50, 50, 50, 50, 700}, {10, 10, 10, 10, 860}, {0.5, 0.5, 0.5, 0.5, 898}, {0, 0, 0, 0, 900},
	}
	for _, split := range splits {
		for i := range split {
			split[i] *= mbit
		}
	}
	return splits
}

// Saved is the part of the packages' power that a host draws less than another.
func (d Drawn) Saved(than Drawn) float64 { return 1 - float64(d.Packages/than.Packages) }

// String is a row of a table: rates and sigma in Mbit/s, powers in watts.
func (d Drawn) String() string {
	row := ""
	for _, rate := range d.Rates {
		row += fmt.Sprintf("%6.4g", float64(rate/mbit))
	}
	return fmt.Sprintf("%s  sigma %5.1f  talkers %4.2f  packages %6.2f W  platform %6.2f W", row, float64(d.Sigma/mbit), d.Talkers, d.Packages, d.Platform)
}
