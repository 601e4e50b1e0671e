package simulated

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/joulevirt/joulevirt/internal/sim"
	"github.com/joulevirt/joulevirt/internal/units"
)

// StudiedAffinity are hosts with the study's traffic: ten VMs that send 90 Mbit/s
// each. The first two are the study's; the third is of the size that runs VMs, and
// has as many times more of them as it has more CPUs.
func StudiedAffinity(seed uint64) []Senders {
	const vms, each, cores = 10, 90 * mbit, 16
	study := sim.Shape{CoresPerPackage: 4}
	return []Senders{
		{"KVM", seed, study, sim.KVM, vms, vms * each},
		{"Xen", seed, study, sim.Xen, vms, vms * each},
		{"server", seed, sim.Shape{CoresPerPackage: cores, ThreadsPerCore: 2}, func() *sim.Physics { return sim.Server(cores) }, 8 * vms, 8 * vms * each},
	}
}

// Placed is what a host draws with its VMs' threads bound in some way, and how its
// CPUs are used.
type Placed struct {
	// Packages is the mean power of the simulated truth.
	Packages units.Watts
	// Busiest is the use of the busiest CPU, and Served the least part of a VM's
	// traffic that was handled.
	Busiest units.Cores
	Served  float64
}

// Saved is the part of the packages' power that a host draws less than another.
func (p Placed) Saved(than Placed) float64 { return 1 - float64(p.Packages/than.Packages) }

// String has power in watts.
func (p Placed) String() string {
	return fmt.Sprintf("packages %6.2f W, busiest CPU %.2f, handled %.3f", p.Packages, p.Busiest, p.Served)
}

// Place measures a host whose VMs' vCPUs are bound as mask says of each. Nil: not at
// all.
func (s Senders) Place(mask func(vm int) units.CPUSet) (Placed, error) {
	h, vms, err := s.sending()
	if err != nil {
		return Placed{}, err
	}
	for i := range vms {
		if mask == nil {
			break
		}
		if err := bindVCPUs(h, i, mask(i)); err != nil {
			return Placed{}, err
		}
	}
	h.Advance(settling)
	return s.placed(h, vms)
}

// sending returns a host whose VMs send equal shares.
func (s Senders) sending() (*sim.Host, []sim.VM, error) {
	h, vms, err := s.host()
	if err != nil {
		return nil, nil, err
	}
	for _, vm := range vms {
		if err := h.SetTraffic(vm.PodUID, sim.Traffic{FromVM: s.Total / units.BitsPerSecond(len(vms))}); err != nil {
			return nil, nil, err
		}
	}
	return h, vms, nil
}

// bindVCPUs binds the vCPUs of the process at a position.
func bindVCPUs(h *sim.Host, at int, cpus units.CPUSet) error {
	processes, err := h.Processes()
	if err != nil {
		return err
	}
	sample, err := h.Sample(processes[at].ID)
	if err != nil {
		return err
	}
	for _, thread := range sample.Threads {
		if len(thread.Name) > 4 && thread.Name[:4] == "CPU " {
			if err := h.SetAffinity(thread.ID, cpus); err != nil {
				return err
			}
		}
	}
	return nil
}

// placed measures a host as it is.
func (s Senders) placed(h *sim.Host, vms []sim.VM) (Placed, error) {
	before, err := h.CPUTimes()
	if err != nil {
		return Placed{}, err
	}
	h.Advance(measuring)
	after, err := h.CPUTimes()
	if err != nil {
		return Placed{}, err
	}
	p := Placed{Packages: h.Truth().Packages, Served: 1}
	for i := range after {
		p.Busiest = max(p.Busiest, units.Cores(float64(after[i].Busy-before[i].Busy)/float64(measuring)))
	}
	for _, vm := range vms {
		truth, err := h.VMTruth(vm.PodUID)
		if err != nil {
			return Placed{}, err
		}
		p.Served = min(p.Served, truth.Served)
	}
	return p, nil
}

// AffinityOutcome is what came of a host with unbound VMs, and of the same under the
// product's plans.
type AffinityOutcome struct {
	Unbound, Planned Placed
	// Changes of the plan, and how many VMs it binds in the end.
	Changes, Bound int
}

// Saved is the part of the packages' power that the plan saves.
func (o AffinityOutcome) Saved() float64 { return o.Planned.Saved(o.Unbound) }

// PlanAffinity lets the manager learn the host for ten minutes and then steer it for an
// hour by its agent, and compares what that draws with VMs that nothing binds.
func (s Senders) PlanAffinity() (o AffinityOutcome, err error) {
	if o.Unbound, err = s.Place(nil); err != nil {
		return o, err
	}
	h, vms, err := s.sending()
	if err != nil {
		return o, err
	}
	dir, err := os.MkdirTemp("", "simulated")
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	m, err := Manage(h, vms, EnforcePolicy(), dir)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if err := m.Watch(settling); err != nil {
		return o, err
	}
	if err := m.Steer(time.Hour, nil); err != nil {
		return o, err
	}
	o.Changes = m.Changes
	for i := range m.Plan.VMs {
		if m.Plan.VMs[i].Acts() {
			o.Bound++
		}
	}
	o.Planned, err = s.placed(h, vms)
	return o, err
}
