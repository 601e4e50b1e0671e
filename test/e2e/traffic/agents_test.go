//go:build e2e

package traffic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/env/node"
	"github.com/joulevirt/joulevirt/test/fleet"
)

const (
	// cores of each node, without siblings.
	cores = 16
	// Each packet counts as so many: this machine carries about a thousand packets a
	// second where a node carries hundreds of thousands, and costs bend only there.
	counted = 400
	// A VM's vhost worker keeps its node busy for perPacket seconds of a core a
	// packet. For being active at all its vCPU takes up to awakeCores of a core, with up
	// to wakeUps a second: half of both at half packets/s. That is concave as it was
	// measured on real hosts.
	perPacket  = 1e-6
	awakeCores = 0.5
	wakeUps    = 20000
	half       = 50000
	// round is the time between two samples.
	round = time.Second
)

// agents plays the agents of all nodes: a real one would say what emulated VMs cost, where
// each packet takes a thousand times what it takes a host. What their CPUs do is made up of
// the packets that really went through the pods' devices.
type agents struct {
	*fleet.Agents
	env    *node.Environment
	cancel context.CancelFunc
	done   sync.WaitGroup
	// known are the counters of pods by their UIDs.
	known map[types.UID]sample

	mu sync.Mutex
	// err is that of the last round: a real agent misses rounds too.
	err error
}

// sample is what a pod's device had counted at a time, and the rates until then.
type sample struct {
	qemu     int
	at       time.Time
	counters procfs.NetDevLine
	rates    []model.VMRates
}

// listen serves at an address that the manager's pod reaches. Call Stop.
func listen(e *node.Environment) (*agents, error) {
	played, err := fleet.NewAgentsAt(e.MachineAddress().String())
	return &agents{Agents: played, env: e, cancel: func() {}, known: map[types.UID]sample{}}, err
}

// start reports the nodes and starts to sample. The product's kinds are installed.
func (a *agents) start(ctx context.Context) error {
	if err := a.sample(ctx); err != nil {
		return err
	}
	for _, n := range a.env.Nodes() {
		object := &corev1.Node{}
		err := a.env.Client().Get(ctx, types.NamespacedName{Name: n.Name}, object)
		if err == nil {
			err = a.Report(ctx, a.env.Client(), object, topology(), v1alpha1.PowerNone)
		}
		if err != nil {
			return fmt.Errorf("report node %s: %w", n.Name, err)
		}
	}
	var background context.Context
	background, a.cancel = context.WithCancel(context.WithoutCancel(ctx))
	a.done.Go(func() { a.run(background) })
	return nil
}

// Stop ends the agents and returns what went wrong as they sampled last.
func (a *agents) Stop() error {
	a.cancel()
	a.done.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	return errors.Join(a.err, a.Close())
}

func (a *agents) run(ctx context.Context) {
	ticker := time.NewTicker(round)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if err := a.sample(ctx); ctx.Err() == nil {
				a.mu.Lock()
				a.err = err
				a.mu.Unlock()
			}
		case <-ctx.Done():
			return
		}
	}
}

// sample reads the VMs' counters and lets the agents tell of them.
func (a *agents) sample(ctx context.Context) error {
	var vmis kubevirtv1.VirtualMachineInstanceList
	if err := a.env.Client().List(ctx, &vmis); err != nil {
		return fmt.Errorf("sample the VMs: %w", err)
	}
	for _, n := range a.env.Nodes() {
		var traffic []model.VMRates
		for i := range vmis.Items {
			if vmi := &vmis.Items[i]; vmi.Status.NodeName == n.Name && vmi.IsRunning() {
				traffic = append(traffic, a.vmRates(n, vmi)...)
			}
		}
		if err := a.SetRates(n.Name, nodeRates(traffic)); err != nil {
			return fmt.Errorf("rates of node %s: %w", n.Name, err)
		}
	}
	return nil
}

// vmRates are what went through the device of a VM's pod since the last call. A VM has rates
// from the second call on, and none while it ends. A round that comes late is soon followed by
// the next, and a few packets within milliseconds are no rate of a second: the last rates stay.
func (a *agents) vmRates(n *node.Node, vmi *kubevirtv1.VirtualMachineInstance) []model.VMRates {
	for uid, on := range vmi.Status.ActivePods {
		if on != n.Name {
			continue
		}
		before, known := a.known[uid]
		qemu, err := before.qemu, error(nil)
		if !known {
			qemu, err = n.QEMU(client.ObjectKeyFromObject(vmi))
		}
		if err != nil {
			continue
		}
		counters, err := netDevice(qemu)
		now := time.Now()
		if err != nil {
			delete(a.known, uid)
			continue
		}
		next := sample{qemu: qemu, at: now, counters: counters}
		if known {
			passed := now.Sub(before.at)
			if passed < round/2 {
				return before.rates
			}
			next.rates = []model.VMRates{ratesOf(vmi, uid, before.counters, counters, passed.Seconds())}
		}
		a.known[uid] = next
		return next.rates
	}
	return nil
}

// netDevice reads the counters of the device of a process's pod.
func netDevice(pid int) (procfs.NetDevLine, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.NetDevLine{}, err
	}
	devices, err := process.NetDev()
	return devices["eth0"], err
}

func ratesOf(vmi *kubevirtv1.VirtualMachineInstance, pod types.UID, before, now procfs.NetDevLine, seconds float64) model.VMRates {
	way := func(bytes, packets uint64) model.TrafficRates {
		return model.TrafficRates{
			BitsPerSecond:    units.BitsPerSecond(counted * 8 * float64(bytes) / seconds),
			PacketsPerSecond: units.PacketsPerSecond(counted * float64(packets) / seconds),
		}
	}
	return model.VMRates{
		PodUID: string(pod), Namespace: vmi.Namespace, Name: vmi.Name,
		VCPUs: []model.VCPURates{{Index: 0}},
		Taps: []model.TapRates{{
			Name:   "tap0",
			ToVM:   way(now.RxBytes-before.RxBytes, now.RxPackets-before.RxPackets),
			FromVM: way(now.TxBytes-before.TxBytes, now.TxPackets-before.TxPackets),
		}},
	}
}

// nodeRates adds to the VMs' traffic what it would cost a node.
func nodeRates(vms []model.VMRates) model.NodeRates {
	rates := model.NodeRates{VMs: vms}
	online := cpus()
	busy := units.Cores(0.1)
	for i := range vms {
		vm := &rates.VMs[i]
		packets := float64(vm.Traffic().PacketsPerSecond)
		vm.AllowedCPUs = online
		awake := packets / (packets + half)
		use := model.ThreadRates{
			RunCores:          units.Cores(0.005 + awakeCores*awake),
			SwitchesPerSecond: units.PerSecond(20 + wakeUps/2*awake),
		}
		vm.Vhost = model.ThreadRates{
			RunCores: units.Cores(perPacket * packets), SwitchesPerSecond: units.PerSecond(wakeUps / 2 * awake),
		}
		vm.VCPUs = []model.VCPURates{{Index: 0, CPUs: online, ThreadRates: use}}
		busy += vm.Busy()
	}
	for cpu := range cores {
		rates.CPUs = append(rates.CPUs, model.CPURates{CPU: cpu, BusyCores: min(1, busy/cores)})
	}
	return rates
}

func cpus() units.CPUSet {
	var all []int
	for i := range cores {
		all = append(all, i)
	}
	return units.NewCPUSet(all...)
}

func topology() v1alpha1.Topology {
	t := v1alpha1.Topology{
		CPUModel:   "played by a test",
		CoreGroups: []v1alpha1.CoreGroup{{}},
	}
	for i := range cores {
		t.CoreGroups[0].Cores = append(t.CoreGroups[0].Cores, units.NewCPUSet(i).String())
	}
	return t
}
