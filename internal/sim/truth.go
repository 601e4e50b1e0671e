package sim

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
)

// Truth is what no real host would tell of the time that the last Advance let
// pass.
type Truth struct {
	// Packages, DRAM and Platform are mean powers: of all packages, of the
	// memory, and of the whole machine, which has the others in it.
	Packages, DRAM, Platform units.Watts
	// Celsius is the highest temperature of a package, at the end.
	Celsius float64
}

// Truth returns the host's.
func (h *Host) Truth() Truth {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := &h.energy
	truth := Truth{}
	for _, c := range h.thermal.celsius {
		truth.Celsius = max(truth.Celsius, c)
	}
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
	// Marginal is by how much the packages' power would fall, at once, if the
	// VM's threads did nothing in the last step and all else stayed as it was. The
	// sum over VMs is not the host's power: what VMs share is no VM's.
	Marginal units.Watts
	// Knee is the greatest traffic, both ways together in the present mix, that
	// the VM's threads could handle if each had a CPU to itself at its present
	// speed.
	Knee units.BitsPerSecond
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
	truth := VMTruth{Served: v.work.handled(), Knee: units.BitsPerSecond(h.knee(v))}
	for i := range v.threads {
		truth.Computed += units.Cores(v.threads[i].last.computed)
	}
	all := h.activity()
	without := h.without(v)
	for pkg, celsius := range h.thermal.celsius {
		truth.Marginal += units.Watts(h.packageWatts(pkg, &all, celsius) - h.packageWatts(pkg, &without, celsius))
	}
	return truth, nil
}

// Waited is for how long a VM's vCPUs waited for CPUs since it came, in the mean of them.
func (h *Host) Waited(podUID string) (time.Duration, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, err := h.pod(podUID)
	if err != nil {
		return 0, err
	}
	seconds := 0.0
	for i := range v.threads {
		if v.threads[i].role == vcpu {
			seconds += v.threads[i].wait
		}
	}
	return duration(seconds / float64(v.VCPUs)), nil
}

// handled is the part of the wanted traffic of both ways.
func (w *work) handled() float64 {
	lost := 1 - (1-w.late)*(1-w.spilt)
	if lost <= 0 {
		return w.served
	}
	return w.served * (1 - lost*w.rx/(w.rx+w.tx))
}

// knee is where the first of the VM's threads is busy all the time: wake-ups
// have vanished by then, and packets alone count.
func (h *Host) knee(v *vm) float64 {
	w := &v.work
	hostTime, guestTime := w.perPacket(&h.phys.Net)
	if v.Userland {
		hostTime *= userland
	}
	first := 1.0
	if v.VCPUs > 1 {
		first = 1 - h.phys.Net.Second/2
	}
	guestTime *= first / max(0.5, 1-w.compute)
	busiest := 0.0
	for i := range v.threads {
		t := &v.threads[i]
		speed := h.classes.of(t.class).speed
		switch {
		case t.role == vcpu:
			busiest = max(busiest, guestTime/speed)
		case t.role == vhost || v.Userland && t.role == emulator:
			busiest = max(busiest, hostTime/speed)
		}
	}
	if busiest == 0 {
		return 0
	}
	const bitsPerByte = 8
	return (w.rx + w.tx) * w.size * bitsPerByte / busiest
}

// without returns the host's activity less a VM's.
func (h *Host) without(v *vm) activity {
	all := h.activity()
	rest := activity{
		busy: append([]float64(nil), all.busy...), heat: append([]float64(nil), all.heat...),
		wakes: append([]float64(nil), all.wakes...), grid: append([]float64(nil), all.grid...),
		window: all.window,
	}
	for i := range v.threads {
		t := &v.threads[i]
		k := h.classes.of(t.class)
		if k.demand <= 0 {
			continue
		}
		for j, cpu := range k.list {
			part := k.spread[j] / k.demand
			rest.busy[cpu] = max(0, rest.busy[cpu]-part*t.last.run)
			rest.heat[cpu] = max(0, rest.heat[cpu]-part*t.last.heat)
			grid := v.work.aligned * t.last.wakes
			rest.grid[cpu] = max(0, rest.grid[cpu]-part*grid)
			rest.wakes[cpu] = max(0, rest.wakes[cpu]-part*(t.last.wakes-grid))
		}
	}
	return rest
}
