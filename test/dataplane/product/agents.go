// Package product runs the product on a world with a real data plane: its
// manager as a process, which tests may kill, and agents that are played but tell
// the real traffic of the VMs.
package product

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/dataplane/world"
	"github.com/joulevirt/joulevirt/test/fleet"
)

const (
	// cores of each node, without siblings.
	cores = 16
	// Each packet counts as so many: this machine carries thousands of packets a
	// second where a node carries hundreds of thousands, and costs bend only there.
	counted = 64
	// A VM's vhost worker keeps its node busy for perPacket seconds of a core a
	// packet. For being active at all its vCPU takes up to active of a core, with up
	// to wakeUps a second: half of both at half packets/s. That is concave as it was
	// measured on real hosts.
	perPacket = 1e-6
	active    = 0.5
	wakeUps   = 20000
	half      = 50000
	// round is the time between two samples.
	round = time.Second
)

// Agents plays the agents of all nodes of a world. What their CPUs do is made up
// of the packets that really went through the VMs' devices.
type Agents struct {
	*fleet.Agents
	world  *world.World
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu  sync.Mutex
	err error
}

// StartAgents reports the nodes and starts to sample. The product's kinds are
// installed. Call Stop.
func StartAgents(ctx context.Context, w *world.World) (*Agents, error) {
	played, err := fleet.NewAgents()
	if err != nil {
		return nil, err
	}
	a := &Agents{Agents: played, world: w, cancel: func() {}}
	if err := a.sample(time.Now()); err != nil {
		return nil, errors.Join(err, a.Stop())
	}
	for _, name := range w.Nodes {
		node := &corev1.Node{}
		err := w.Client().Get(ctx, types.NamespacedName{Name: name}, node)
		if err == nil {
			err = played.Report(ctx, w.Client(), node, topology(), v1alpha1.PowerNone)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("report node %s: %w", name, err), a.Stop())
		}
	}
	background, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	a.done.Go(func() { a.run(background) })
	return a, nil
}

// Stop ends the agents and returns what went wrong while they sampled.
func (a *Agents) Stop() error {
	a.cancel()
	a.done.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	return errors.Join(a.err, a.Close())
}

func (a *Agents) run(ctx context.Context) {
	ticker := time.NewTicker(round)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			if err := a.sample(now); err != nil {
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
func (a *Agents) sample(now time.Time) error {
	traffic, err := a.world.Fleet.Rates(now)
	if err != nil {
		return fmt.Errorf("sample the VMs: %w", err)
	}
	for _, node := range a.world.Nodes {
		if err := a.SetRates(node, nodeRates(traffic[node])); err != nil {
			return fmt.Errorf("rates of node %s: %w", node, err)
		}
	}
	return nil
}

// nodeRates adds to the VMs' traffic what it would cost a node.
func nodeRates(vms []model.VMRates) model.NodeRates {
	rates := model.NodeRates{VMs: vms}
	online := cpus()
	busy := units.Cores(0.1)
	for i := range vms {
		vm := &rates.VMs[i]
		for _, way := range []*model.TrafficRates{&vm.Taps[0].ToVM, &vm.Taps[0].FromVM} {
			way.PacketsPerSecond *= counted
			way.BitsPerSecond *= counted
		}
		packets := float64(vm.Traffic().PacketsPerSecond)
		vm.AllowedCPUs = online
		awake := packets / (packets + half)
		use := model.ThreadRates{
			RunCores:          units.Cores(0.005 + active*awake),
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
