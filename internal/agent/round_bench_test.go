package agent

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/agenttest"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/agent/publish"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// idleHost is a node of VMs whose threads are as they were set, and which costs next to
// nothing to read.
type idleHost struct {
	host.Host
	processes []host.Process
	samples   map[host.TaskID]host.ProcessSample
	threads   map[host.TaskID]*host.ThreadSample
	slices    map[host.TaskID]time.Duration
	cpuset    units.CPUSet
}

func (h *idleHost) Topology() (model.Topology, error) {
	var t model.Topology
	for _, cpu := range h.cpuset.CPUs() {
		t.Cores = append(t.Cores, model.Core{CPUs: units.NewCPUSet(cpu)})
	}
	return t, nil
}
func (h *idleHost) CPUTimes() ([]host.CPUTimes, error)                { return nil, nil }
func (h *idleHost) EnergyZones() ([]host.EnergyZone, error)           { return nil, host.ErrUnsupported }
func (h *idleHost) Uptime() (uint64, error)                           { return 1000, nil }
func (h *idleHost) Processes() ([]host.Process, error)                { return h.processes, nil }
func (h *idleHost) Cpuset(host.TaskID) (units.CPUSet, error)          { return h.cpuset, nil }
func (h *idleHost) Cgroup(host.TaskID) (host.CgroupFacts, error)      { return host.CgroupFacts{}, nil }
func (h *idleHost) Actors() ([]host.Actor, error)                     { return nil, nil }
func (h *idleHost) Sample(id host.TaskID) (host.ProcessSample, error) { return h.samples[id], nil }
func (h *idleHost) Slice(id host.TaskID) (time.Duration, error)       { return h.slices[id], nil }
func (h *idleHost) Affinity(id host.TaskID) (units.CPUSet, error)     { return h.threads[id].CPUs, nil }
func (h *idleHost) Uplinks(host.TaskID) ([]host.Uplink, error)        { return nil, nil }
func (h *idleHost) Monotonic() (time.Duration, error)                 { return time.Hour, nil }
func (h *idleHost) KeepTurns(time.Duration) error                     { return nil }
func (h *idleHost) KeepBuffering(time.Duration) error                 { return nil }

func (h *idleHost) Buffer(host.TaskID, string, model.Buffering) error { return nil }

func (h *idleHost) Taps(host.TaskID) ([]host.Tap, error) {
	return []host.Tap{{Name: "tap0", Index: 2, Owner: host.QueueOurs, Queue: "fq 4a5b:", Buffered: true}}, nil
}

func (h *idleHost) Buffered(host.TaskID) ([]host.BufferSample, error) {
	return []host.BufferSample{{Name: "tap0", Window: time.Millisecond, Guest: &model.GuestTools{ToleratedMicroseconds: 1000}}}, nil
}

func (h *idleHost) SetSlice(id host.TaskID, slice time.Duration) error {
	h.slices[id] = slice
	return nil
}

func (h *idleHost) SetAffinity(id host.TaskID, cpus units.CPUSet) error {
	h.threads[id].CPUs = cpus
	return nil
}

const (
	benchVMs   = 200
	benchVCPUs = 6
)

// newIdle returns the agent of a node whose VMs have pins and slices in force, and packets
// that are held.
func newIdle(b *testing.B) *Agent {
	h := &idleHost{
		samples: map[host.TaskID]host.ProcessSample{}, threads: map[host.TaskID]*host.ThreadSample{},
		slices: map[host.TaskID]time.Duration{}, cpuset: units.NewCPUSet(0, 1, 2, 3, 4, 5, 6, 7),
	}
	c := &cluster{synced: true, renewed: time.Now(), inventory: discover.Inventory{Pods: map[string]discover.Pod{}, VMIs: map[string]discover.VMI{}}}
	plan := &v1alpha1.NodePlan{Spec: v1alpha1.NodePlanSpec{Apply: true, Revision: "r"}}
	plan.UID = "plan"
	for i := range benchVMs {
		uid, name, pid := fmt.Sprintf("0f9a3c52-7d1e-4b7a-9c55-%012d", i), fmt.Sprintf("vm-%d", i), 1000+100*i
		id := host.TaskID{PID: pid, TID: pid, Start: 5}
		h.processes = append(h.processes, host.Process{
			ID: id, Args: []string{"qemu", "-name", "guest=shop_" + name}, Cgroups: "0::/kubepods/pod" + uid + "/c\n",
		})
		sample := host.ProcessSample{Threads: make([]host.ThreadSample, benchVCPUs+2)}
		action := &v1alpha1.AffinityAction{EmulatorCPUs: "0-7"}
		for n := range sample.Threads {
			one := &sample.Threads[n]
			one.ID, one.CPUs, one.Name = host.TaskID{PID: pid, TID: pid + n, Start: 5}, h.cpuset, fmt.Sprintf("CPU %d/KVM", n-1)
			h.threads[one.ID] = one
			if n > 0 && n <= benchVCPUs {
				action.VCPUs = append(action.VCPUs, v1alpha1.VCPUPin{VCPU: int32(n - 1), CPUs: fmt.Sprint(n)})
			}
		}
		sample.Threads[benchVCPUs+1].Name = "vhost-1"
		h.samples[id] = sample
		c.inventory.Pods[uid] = discover.Pod{UID: uid, Namespace: "shop", CreatedBy: name}
		c.inventory.VMIs[name] = discover.VMI{UID: name, Namespace: "shop", Name: name}
		plan.Spec.VMs = append(plan.Spec.VMs, v1alpha1.VMPlan{
			VMReference: v1alpha1.VMReference{Namespace: "shop", Name: name, PodUID: types.UID(uid)},
			Affinity:    action, Slice: &v1alpha1.SliceAction{Microseconds: 3000},
			Buffering: &v1alpha1.BufferingAction{WindowMicroseconds: ptr.To[int32](1000), OnPacketsPerSecond: 10_000},
		})
	}
	c.plan = plan
	j, err := journal.Open(b.TempDir(), "boot")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { j.Close() })
	a, err := New(Options{
		Node: "node1", Interval: time.Second, StaleAfter: 100 * time.Hour,
		Host: h, Cluster: c, Libvirt: agenttest.NoLibvirt{}, Statuses: c,
		Prior: noPrior, Board: &publish.Board{}, Clock: clock.RealClock{}, Log: logr.Discard(),
	}, j)
	if err != nil {
		b.Fatal(err)
	}
	a.round(b.Context(), true)
	if status := c.status; status.VMsInForce != benchVMs {
		b.Fatalf("%d VMs in force: %+v", status.VMsInForce, status.Conditions)
	}
	return a
}

// The round of an agent whose plan is in force, without what the kernel takes.
func BenchmarkUnchangedRound(b *testing.B) {
	a := newIdle(b)
	for b.Loop() {
		a.round(b.Context(), true)
	}
}
