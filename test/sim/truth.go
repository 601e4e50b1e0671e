package sim

import "github.com/joulevirt/joulevirt/internal/units"

// Truth is what no real host would tell of the time that the last Advance let
// pass.
type Truth struct {
	// Packages, DRAM and Platform are mean powers: of all packages, of the
	// memory, and of the whole machine, which has the others in it.
	Packages, DRAM, Platform units.Watts
}

// Truth returns the host's.
func (h *Host) Truth() Truth {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := &h.energy
	truth := Truth{}
	if e.seconds > 0 {
		truth.Packages = units.Watts(e.joules / e.seconds)
		truth.DRAM = units.Watts(e.dramJoules / e.seconds)
		truth.Platform = units.Watts(e.platformJoules / e.seconds)
	}
	return truth
}

// Joules is the true energy of all packages since the host's start.
func (h *Host) Joules() units.Joules {
	h.mu.Lock()
	defer h.mu.Unlock()
	sum := 0.0
	for _, j := range h.energy.packages {
		sum += j
	}
	return units.Joules(sum)
}

// PlatformJoules is the true energy of the whole machine since the host's start.
func (h *Host) PlatformJoules() units.Joules {
	h.mu.Lock()
	defer h.mu.Unlock()
	return units.Joules(h.energy.platform)
}

// VMTruth is what no real host would tell of one VM.
type VMTruth struct {
	// Served is the part of the wanted traffic that was handled.
	Served float64
	// Computed is what the VM did beside its traffic in the last step: the CPU time
	// that a core alone would have needed.
	Computed units.Cores
}

// VMTruth returns that of a VM.
func (h *Host) VMTruth(podUID string) (VMTruth, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, err := h.pod(podUID)
	if err != nil {
		return VMTruth{}, err
	}
	truth := VMTruth{Served: v.work.handled()}
	for i := range v.threads {
		truth.Computed += units.Cores(v.threads[i].last.computed)
	}
	return truth, nil
}

// handled is the part of the wanted traffic of both ways.
func (w *work) handled() float64 {
	lost := 1 - (1-w.late)*(1-w.spilt)
	if lost <= 0 {
		return w.served
	}
	return w.served * (1 - lost*w.rx/(w.rx+w.tx))
}
