package simulated

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/sim"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Bunched is a simulated host whose VMs' packets may be held.
type Bunched struct {
	Name    string
	Seed    uint64
	Shape   sim.Shape
	Physics func() *sim.Physics
	// VMs without namespace and PodUID, which are made up. Profiled is what the profile of
	// each says.
	VMs      []sim.VM
	Profiled func(*model.VM)
	// FreePhases are those of sim.Config.
	FreePhases bool
}

// BufferPolicy lets lever Buffering act, and no other.
func BufferPolicy() model.Policy {
	policy := EnforcePolicy()
	policy.Levers = []model.Lever{model.LeverBuffering}
	return policy
}

// throughput is a profile for bytes to be moved, which leaves the longest window.
func throughput(vm *model.VM) {
	vm.TrafficClass, vm.LatencyBudget, vm.DefendFloods = model.TrafficThroughput, 2*model.LongestWindow, true
	vm.OnPackets = 10_000
}

// StudiedBuffering are hosts with much traffic. The first is the study's: one VM receives
// 940 Mbit/s. The second is of the size that runs VMs, which send as well.
func StudiedBuffering(seed uint64) []Bunched {
	const cores, many = 16, 8
	study := []sim.VM{{Name: "iperf", VCPUs: 4, Traffic: sim.Traffic{ToVM: 940 * mbit}}}
	var vms []sim.VM
	for i := range many {
		vms = append(vms, sim.VM{Name: fmt.Sprintf("web-%d", i), VCPUs: 2, Traffic: sim.Traffic{
			Programme: sim.Programme{Pattern: sim.Diurnal, Swing: 0.3},
			ToVM:      units.BitsPerSecond(100+30*i) * mbit, FromVM: units.BitsPerSecond(20+5*i) * mbit, PacketBytes: 700,
		}})
	}
	return []Bunched{
		{"study", seed, sim.Shape{CoresPerPackage: 4}, sim.KVM, study, throughput, false},
		{"server", seed, sim.Shape{CoresPerPackage: cores, ThreadsPerCore: 2}, func() *sim.Physics { return sim.Server(cores) }, vms, throughput, false},
	}
}

// host returns the host with its VMs.
func (b Bunched) host() (*sim.Host, []sim.VM, error) {
	h, err := sim.NewHost(sim.Config{
		Name: b.Name, Seed: b.Seed, Start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Shape: b.Shape,
		Physics: b.Physics(), CPUModel: b.Name, Meter: sim.Meter{Platform: true}, FreePhases: b.FreePhases,
	})
	if err != nil {
		return nil, nil, err
	}
	vms := slices.Clone(b.VMs)
	for i := range vms {
		vms[i].Namespace, vms[i].PodUID = "simulated", fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
		if _, err := h.AddVM(vms[i]); err != nil {
			return nil, nil, err
		}
	}
	return h, vms, nil
}

// Tuned is a Bunched host under the product's plans, with what was seen of it.
type Tuned struct {
	*Managed
	// Pods of the VMs, in their order.
	Pods []string
	// Windows that each VM was planned to have, by turns: none twice in a row.
	Windows [][]time.Duration
	dir     string
}

// Tune starts the host's agent and manager. The caller calls End.
func (b Bunched) Tune() (*Tuned, error) {
	h, vms, err := b.host()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "simulated")
	if err != nil {
		return nil, err
	}
	m, err := Manage(h, vms, BufferPolicy(), dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	m.Profiles(b.Profiled)
	t := &Tuned{Managed: m, Windows: make([][]time.Duration, len(vms)), dir: dir}
	for i := range vms {
		t.Pods = append(t.Pods, vms[i].PodUID)
		t.Windows[i] = []time.Duration{0}
	}
	return t, nil
}

// End ends the agent, and returns an error when it leaves a tap otherwise than it was.
func (t *Tuned) End() error {
	err := errors.Join(t.Close(), os.RemoveAll(t.dir))
	for _, pod := range t.Pods {
		taps, tapErr := t.taps(pod)
		err = errors.Join(err, tapErr)
		for _, tap := range taps {
			if tap.Owner != host.QueueDefault || tap.Buffered {
				err = errors.Join(err, fmt.Errorf("simulated pod %s is left with tap %+v", pod, tap))
			}
		}
	}
	return err
}

// process of a pod's VM.
func (t *Tuned) process(pod string) (host.TaskID, error) {
	processes, err := t.Host.Processes()
	if err != nil {
		return host.TaskID{}, err
	}
	at := slices.Index(t.Pods, pod)
	if at < 0 || at >= len(processes) {
		return host.TaskID{}, fmt.Errorf("simulated host %s has no process of pod %s", t.Host.Name(), pod)
	}
	return processes[at].ID, nil
}

func (t *Tuned) taps(pod string) ([]host.Tap, error) {
	process, err := t.process(pod)
	if err != nil {
		return nil, err
	}
	return t.Host.Taps(process)
}

// Counters of a VM's only tap. None: it is not buffered.
func (t *Tuned) Counters(vm int) (host.BufferSample, error) {
	process, err := t.process(t.Pods[vm])
	if err != nil {
		return host.BufferSample{}, err
	}
	list, err := t.Host.Buffered(process)
	if err != nil || len(list) == 0 {
		return host.BufferSample{}, err
	}
	return list[0], nil
}

// For steers for some time and notes windows.
func (t *Tuned) For(d time.Duration) error {
	return t.Steer(d, func() error {
		for i, pod := range t.Pods {
			window := t.Of(pod).Buffering.Window
			if seen := t.Windows[i]; seen[len(seen)-1] != window {
				t.Windows[i] = append(seen, window)
			}
		}
		return nil
	})
}

// Of is what the plan says of a pod's VM.
func (t *Tuned) Of(pod string) model.VMPlan {
	if t.Plan == nil {
		return model.VMPlan{}
	}
	vm, _ := t.Plan.VM(pod)
	return vm
}

// Watts are what a host draws, by the simulated truth: its packages, and all of it.
type Watts struct{ Packages, Platform units.Watts }

// metered measures a host while some time passes.
func metered(h *sim.Host, over time.Duration, pass func(time.Duration) error) (Watts, error) {
	packages, platform := h.Joules(), h.PlatformJoules()
	err := pass(over)
	per := func(j units.Joules) units.Watts { return units.Watts(float64(j) / over.Seconds()) }
	return Watts{per(h.Joules() - packages), per(h.PlatformJoules() - platform)}, err
}

// BufferingOutcome is what came of a host that holds nothing, and of the same under the
// product's plans.
type BufferingOutcome struct {
	Plain, Held Watts
	// Windows of each VM, and Changes of the plan.
	Windows [][]time.Duration
	Changes int
	// Served is the least part of a VM's traffic that was handled in the end.
	Served float64
	// Packets towards VMs that were held, and that passed, on taps that had the program.
	Kept, Passed uint64
}

// Packages and Platform are the parts of the powers that are saved.
func (o BufferingOutcome) Packages() float64 { return 1 - float64(o.Held.Packages/o.Plain.Packages) }

// Platform is that of the whole machine.
func (o BufferingOutcome) Platform() float64 { return 1 - float64(o.Held.Platform/o.Plain.Platform) }

// PlanBuffering lets the manager steer the host by its agent for some time and then for
// another half hour, and compares what that draws with the same host without.
func (b Bunched) PlanBuffering(learn time.Duration) (o BufferingOutcome, err error) {
	plain, _, err := b.host()
	if err != nil {
		return o, err
	}
	plain.Advance(learn)
	o.Plain, err = metered(plain, measuring, func(d time.Duration) error { plain.Advance(d); return nil })
	if err != nil {
		return o, err
	}
	t, err := b.Tune()
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, t.End()) }()
	if err := t.For(learn); err != nil {
		return o, err
	}
	if o.Held, err = metered(t.Host, measuring, t.For); err != nil {
		return o, err
	}
	o.Windows, o.Changes, o.Served = t.Windows, t.Changes, 1
	for vm, pod := range t.Pods {
		truth, truthErr := t.Host.VMTruth(pod)
		counters, err := t.Counters(vm)
		if err := errors.Join(truthErr, err); err != nil {
			return o, err
		}
		o.Served = min(o.Served, truth.Served)
		o.Kept += counters.Held
		o.Passed += counters.Passed
	}
	return o, nil
}
