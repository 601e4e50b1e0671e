//go:build e2e

package agent

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/host/linux"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/agenttest"
	"github.com/joulevirt/joulevirt/test/hosttest"
)

// otherwiseIdle is this machine, on which other tests may run, with one CPU said to idle.
type otherwiseIdle struct {
	*linux.Host
	idle  units.CPUSet
	since time.Time
	vcpu  host.TaskID
	// rounds that began, and of which the pin was undone last.
	rounds, undone atomic.Int64
}

// CPUTimes is asked for once a round.
func (o *otherwiseIdle) CPUTimes() ([]host.CPUTimes, error) {
	o.rounds.Add(1)
	times, err := o.Host.CPUTimes()
	for i := range times {
		if o.idle.Contains(times[i].CPU) {
			times[i].Idle = time.Since(o.since)
		}
	}
	return times, err
}

func (o *otherwiseIdle) ClearAffinity(thread host.TaskID) error {
	if thread == o.vcpu {
		o.undone.Store(o.rounds.Load())
	}
	return o.Host.ClearAffinity(thread)
}

// A vCPU that is bound to a CPU on which a program begins to spin is let go of in the second
// round from then on at the latest, which a machine with time for its rounds begins two seconds
// after at most. Rounds are counted, for this machine may have none.
//
//e2e:alone it judges a thread by how long it waits
func TestARealBadPinIsWidened(t *testing.T) {
	b := newBench(t)
	pod := hosttest.NewPod(t, b.both().String())
	busy, hog := hosttest.StartVM(t, "shop", "busy"), hosttest.StartVM(t, "shop", "hog")
	b.vcpu = busy.Spin("CPU 0/TCG")
	pod.Add(busy)
	spinning := hog.Spin("hog")
	b.cluster.inventory = discover.Inventory{}
	agenttest.AddVM(&b.cluster.inventory, pod.UID, "shop", "busy")
	b.cluster.plan.Spec.VMs[0].PodUID = types.UID(pod.UID)

	var err error
	b.host, err = linux.New(linux.Options{ProcRoot: "/proc", SysRoot: "/sys"})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.host.SetAffinity(spinning, b.other); err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(b.dir, "boot")
	if err != nil {
		t.Fatal(err)
	}
	machine := &otherwiseIdle{Host: b.host, idle: b.other, since: time.Now(), vcpu: b.vcpu}
	a, err := New(Options{
		Node: "node1", Interval: time.Second, StaleAfter: b.staleAfter,
		Host: machine, Cluster: b.cluster, Statuses: b.cluster,
		Prior: noPrior, Board: b.board, Clock: clock.RealClock{}, Log: logr.Discard(),
	}, j)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	defer func() {
		cancel()
		if err := errors.Join(<-ended, j.Close()); err != nil {
			t.Error(err)
		}
	}()
	b.want("the pin", b.one)
	if err := b.host.SetAffinity(spinning, b.one); err != nil {
		t.Fatal(err)
	}
	began, before := time.Now(), machine.rounds.Load()
	b.want("the pin to be undone", b.both())
	t.Logf("the pin was undone after %v", time.Since(began))
	if took := machine.undone.Load() - before; took < 1 || took > 2 {
		t.Errorf("the pin was undone in round %d after it began to hurt, want the second at most", took)
	}
	b.rounds(1)
	trips := b.board.Latest().Rates.Trips
	if len(trips) != 1 || trips[0].PodUID != pod.UID || trips[0].Lever != v1alpha1.LeverAffinity || trips[0].Symptom != model.SymptomRunDelay {
		t.Errorf("trips %+v", trips)
	}
	b.cluster.mu.Lock()
	defer b.cluster.mu.Unlock()
	if vms := b.cluster.status.VMs; len(vms) != 1 || vms[0].State != v1alpha1.LeverBlocked || vms[0].Reason != v1alpha1.ReasonGuardTripped {
		t.Errorf("status %+v", vms)
	}
}
