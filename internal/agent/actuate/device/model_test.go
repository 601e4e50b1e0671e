package device

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/agent/actuate"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/sample"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
)

// node is a made-up node to which anything happens.
type node struct {
	*bench
	r    *rand.Rand
	vms  []discover.VM
	plan map[string]model.Buffering
	born int
	// disturbed is true when somebody else did something since the last round.
	disturbed bool
}

func newNode(t *testing.T, r *rand.Rand) *node {
	n := &node{bench: newBench(t), r: r, plan: map[string]model.Buffering{}}
	clear(n.pods)
	for range 1 + r.IntN(3) {
		n.startVM()
	}
	return n
}

func (n *node) startVM() {
	n.born++
	process := host.TaskID{PID: 100 + n.born, TID: 100 + n.born, Start: uint64(n.born)}
	n.pods[process] = map[string]*tap{}
	for _, name := range []string{"tap0", "tap1"}[:n.r.IntN(3)] {
		n.pods[process][name] = n.newTap()
	}
	n.vms = append(n.vms, discover.VM{Process: process, PodUID: string(rune('a' + n.born))})
}

// anyTap returns some tap of some VM; nil: there is none.
func (n *node) anyTap() (pod map[string]*tap, name string) {
	if len(n.vms) == 0 {
		return nil, ""
	}
	pod = n.pods[n.vms[n.r.IntN(len(n.vms))].Process]
	if len(pod) == 0 {
		return nil, ""
	}
	names := slices.Sorted(maps.Keys(pod))
	return pod, names[n.r.IntN(len(names))]
}

// step does something to the node, or has the agent do a round.
func (n *node) step() {
	n.now += time.Duration(n.r.IntN(3)) * time.Second
	switch n.r.IntN(10) {
	case 0: // a plan for some VM
		if len(n.vms) > 0 {
			uid := n.vms[n.r.IntN(len(n.vms))].PodUID
			if n.plan[uid] = *window(model.ShortestWindow << n.r.IntN(4)); n.r.IntN(3) == 0 {
				delete(n.plan, uid)
			}
		}
	case 1: // somebody else's queue comes or goes, or ours is removed
		if pod, name := n.anyTap(); pod != nil {
			pod[name].give([]string{kernelsQueue, othersQueue}[n.r.IntN(2)])
			n.disturbed = true
		}
	case 2: // a tap is made anew, or unplugged
		if pod, name := n.anyTap(); pod != nil {
			if pod[name] = n.newTap(); n.r.IntN(2) == 0 {
				delete(pod, name)
			}
			n.disturbed = true
		}
	case 3:
		if len(n.vms) > 0 {
			i := n.r.IntN(len(n.vms))
			delete(n.pods, n.vms[i].Process)
			if n.r.IntN(2) == 0 { // or it is not known yet that it ended
				n.vms = slices.Delete(n.vms, i, i+1)
			}
			n.disturbed = true
		}
	case 4:
		n.startVM()
	case 5, 6: // killed somewhere in a round, or refused, which the journal may be too
		n.failing = n.r.IntN(5)
		if n.r.IntN(2) == 0 {
			n.store.fail = errKilled
		}
		n.round()
		n.failing, n.store.fail = -1, nil
		if n.r.IntN(2) == 0 {
			n.restart()
		}
	case 7: // what lasts
		n.refuse = []error{nil, host.ErrUnsupported, errors.New("out of memory")}[n.r.IntN(3)]
		n.round()
		n.refuse = nil
	default:
		n.round()
	}
}

// round is one of the agent. What it says is checked, unless somebody else was there since
// the VMs were read.
func (n *node) round() {
	n.t.Helper()
	if n.r.IntN(2) == 0 {
		n.now += readInterval
		n.disturbed = false
	}
	vms := make([]sample.VM, len(n.vms))
	for i := range vms {
		vms[i].VM = n.vms[i]
	}
	results, err := n.actuator.Apply(vms, func(podUID string) (model.Buffering, bool) {
		want, planned := n.plan[podUID]
		return want, planned
	})
	if err != nil || n.disturbed {
		return
	}
	for _, r := range results {
		for name, d := range n.pods[r.Process] {
			want, planned := n.plan[r.PodUID]
			switch r.Outcome {
			case actuate.Applied:
				if !planned || !d.program || d.owner != host.QueueOurs || !d.as.Equal(want) {
					n.t.Fatalf("%s of %s is %+v, want %+v", name, r.PodUID, d, want)
				}
			case actuate.Undone:
				if planned || d.program || d.owner == host.QueueOurs {
					n.t.Fatalf("%s of %s is %+v, and not planned: %v", name, r.PodUID, d, !planned)
				}
			case actuate.Gone:
				n.t.Fatalf("%s is there, and %s is gone", name, r.PodUID)
			}
		}
	}
}

// Whatever happened, in the end nothing of the agent's is left, and nothing of others'
// was touched.
func TestUndoingLeavesNothing(t *testing.T) {
	for seed := range uint64(3000) {
		checkUndo(t, seed, 40)
	}
}

func checkUndo(t *testing.T, seed uint64, steps int) {
	t.Helper()
	n := newNode(t, rand.New(rand.NewPCG(seed, 1)))
	for range steps {
		n.step()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if n.r.IntN(2) == 0 {
		n.restart()
	}
	others := map[*tap]bool{}
	for _, pod := range n.pods {
		for _, d := range pod {
			others[d] = d.queue == othersQueue
		}
	}
	if err := n.actuator.Restore(); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	if len(n.store.taps) != 0 {
		t.Fatalf("seed %d: the journal still holds %v", seed, n.store.taps)
	}
	for d, foreign := range others {
		if d.program || d.owner == host.QueueOurs || foreign != (d.queue == othersQueue) {
			t.Fatalf("seed %d: a tap is left as %+v, somebody else's before: %v", seed, d, foreign)
		}
	}
	n.clock.Step(time.Minute)
	n.keeper.Alive()
	n.lease = 0
	if n.keeper.Beat(); n.lease != 0 {
		t.Fatalf("seed %d: packets are held on", seed)
	}
}
