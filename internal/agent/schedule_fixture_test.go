package agent

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/agenttest"
	"github.com/joulevirt/joulevirt/test/sim"
)

// scheduled is the agent of a simulated node with a VM that all levers act on, and one
// whose packets are held but for floods.
type scheduled struct {
	*simNode
	pin units.CPUSet
	// processes of the two VMs, and the vCPU of the first.
	processes [2]host.TaskID
	vcpu      host.TaskID
	// statuses counts how often the plan's status changed.
	statuses int
}

func newScheduled(t *testing.T, trials ...v1alpha1.TrialSchedule) *scheduled {
	t.Helper()
	s := &scheduled{simNode: newSimNode(t, sim.Config{
		Start: noon().Add(-time.Minute), Shape: sim.Shape{Packages: 1, CoresPerPackage: 2, ThreadsPerCore: 2},
	})}
	h := s.host
	for i := range s.processes {
		var err error
		name := fmt.Sprintf("vm-%d", i)
		if s.processes[i], err = h.AddVM(sim.VM{Namespace: "shop", Name: name, PodUID: podUID(i), VCPUs: 1}); err != nil {
			t.Fatal(err)
		}
		agenttest.AddVM(&s.cluster.inventory, podUID(i), "shop", name)
	}
	sample, err := h.Sample(s.processes[0])
	if err != nil {
		t.Fatal(err)
	}
	for i := range sample.Threads {
		if discover.RoleOf(sample.Threads[i].Thread).Kind == discover.VCPU {
			s.vcpu = sample.Threads[i].ID
		}
	}
	topology, err := h.Topology()
	if err != nil {
		t.Fatal(err)
	}
	s.pin = topology.Cores[1].CPUs
	plan := everything(trials...)
	for i := range s.processes {
		plan.Spec.VMs[1-i].VMReference = v1alpha1.VMReference{Namespace: "shop", Name: fmt.Sprintf("vm-%d", i), PodUID: types.UID(podUID(i))}
	}
	plan.Spec.VMs[1].Affinity = &v1alpha1.AffinityAction{VCPUs: []v1alpha1.VCPUPin{{CPUs: s.pin.String()}}}
	s.cluster.plan = plan
	s.start()
	return s
}

// kill ends the agent without its reverting anything, and starts another.
func (s *scheduled) kill() {
	s.Helper()
	s.crash()
	s.cluster.plan.Status = s.cluster.status
	s.start()
}

// change is another generation of the plan.
func (s *scheduled) change(do func(*v1alpha1.NodePlan)) {
	s.cluster.plan = s.cluster.plan.DeepCopy()
	s.cluster.plan.Generation++
	do(s.cluster.plan)
}

// round is one of the agent, a second later.
func (s *scheduled) round() {
	s.Helper()
	s.cluster.renewed = s.clock.Now().Add(time.Second)
	was := s.cluster.status
	s.step()
	if !cmp.Equal(was, s.cluster.status) {
		s.statuses++
	}
	if err := s.board.Latest().RoundError; err != nil {
		s.Fatal(err)
	}
}

func (s *scheduled) rounds(n int) {
	s.Helper()
	for range n {
		s.round()
	}
}

// at is a round at a time after noon.
func (s *scheduled) at(after time.Duration) {
	s.Helper()
	s.rounds(int(noon().Add(after).Sub(s.clock.Now()) / time.Second))
}

// on are the levers that the host shows to act on the first VM, and the window of the
// second one's tap: -1 without the agent's program.
func (s *scheduled) on() (levers map[v1alpha1.Lever]bool, second time.Duration) {
	s.Helper()
	must := func(err error) {
		s.Helper()
		if err != nil {
			s.Fatal(err)
		}
	}
	cpus, err := s.host.Affinity(s.vcpu)
	must(err)
	slice, err := s.host.Slice(s.vcpu)
	must(err)
	uplinks, err := s.host.Uplinks(s.processes[0])
	must(err)
	first, err := s.host.Buffered(s.processes[0])
	must(err)
	other, err := s.host.Buffered(s.processes[1])
	must(err)
	second = -1
	if len(other) > 0 {
		second = other[0].Window
	}
	return map[v1alpha1.Lever]bool{
		v1alpha1.LeverAffinity:  cpus.Equal(s.pin),
		v1alpha1.LeverSlice:     slice == 3*time.Millisecond,
		v1alpha1.LeverShaping:   uplinks[0].Owner == host.QueueOurs,
		v1alpha1.LeverBuffering: len(first) > 0 && first[0].Window > 0,
	}, second
}

func (s *scheduled) want(what string, levers ...v1alpha1.Lever) {
	s.Helper()
	want := map[v1alpha1.Lever]bool{
		v1alpha1.LeverAffinity: false, v1alpha1.LeverSlice: false, v1alpha1.LeverShaping: false, v1alpha1.LeverBuffering: false,
	}
	for _, lever := range levers {
		want[lever] = true
	}
	if got, _ := s.on(); !cmp.Equal(want, got) {
		s.Errorf("%s: on are %v, want %v", what, got, want)
	}
}

func (s *scheduled) applied(lever v1alpha1.Lever) v1alpha1.VMApplied {
	for _, one := range s.cluster.status.VMs {
		if one.Lever == lever && one.Name == "vm-0" {
			return one
		}
	}
	return v1alpha1.VMApplied{}
}
