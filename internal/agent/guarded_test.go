package agent

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/publish"
	"github.com/joulevirt/joulevirt/internal/agent/sample"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/symptoms"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/sim"
)

// vm7 is a VM of the simulated host that computes for more than half of a CPU.
const vm7 = "0f9a3c52-7d1e-4b7a-9c55-000000000007"

// pinned has the VM's first vCPU bound to CPU 2, of a plan of its own revision.
func (s *simulated) pinned(revision string) {
	c := s.cluster
	c.change(func() {
		c.plan = &v1alpha1.NodePlan{Spec: v1alpha1.NodePlanSpec{Revision: revision, Apply: true, VMs: []v1alpha1.VMPlan{{
			VMReference: v1alpha1.VMReference{Namespace: "shop", Name: "vm-7", PodUID: types.UID(vm7)},
			Affinity:    &v1alpha1.AffinityAction{VCPUs: []v1alpha1.VCPUPin{{VCPU: 0, CPUs: "2"}}},
		}}}}
		c.plan.UID = types.UID("plan")
	})
}

// hog has a program that is bound there use all of CPU 2.
func (s *simulated) hog(level float64) {
	if err := s.host.SetUnmanaged(sim.Unmanaged{Compute: sim.Compute{Cores: units.Cores(level)}, CPUs: units.NewCPUSet(2)}); err != nil {
		s.Fatal(err)
	}
}

// mask of the VM's first vCPU.
func (s *simulated) mask() string {
	rates := s.board.Latest().Rates
	at := slices.IndexFunc(rates.VMs, func(vm model.VMRates) bool { return vm.PodUID == vm7 })
	return rates.VMs[at].VCPUs[0].CPUs.String()
}

func (s *simulated) status() v1alpha1.VMApplied {
	c := s.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.status.VMs) != 1 {
		s.Fatalf("status %+v", c.status)
	}
	return c.status.VMs[0]
}

func guardedHost(t *testing.T) *simulated {
	s := newSimulated(t, sim.Config{Shape: sim.Shape{CoresPerPackage: 32}})
	if err := s.host.SetCompute(vm7, sim.Compute{Cores: 1.2}); err != nil {
		t.Fatal(err)
	}
	s.pinned("r1")
	s.rounds(30)
	if got := s.mask(); got != "2" {
		t.Fatalf("vCPU on %s", got)
	}
	return s
}

func TestABadPinIsWidened(t *testing.T) {
	s := guardedHost(t)
	if trips := s.board.Latest().Rates.Trips; len(trips) != 0 {
		t.Fatalf("trips of a good pin: %+v", trips)
	}
	s.hog(1)
	began := s.host.Now()
	s.rounds(1)
	for took := 1; len(s.board.Latest().Rates.Trips) == 0; took++ {
		if took == 2 {
			t.Fatalf("not undone after %d s", took)
		}
		s.rounds(1)
	}
	trip := s.board.Latest().Rates.Trips[0]
	status := s.status()
	if trip.PodUID != vm7 || trip.Name != "vm-7" || trip.Symptom != model.SymptomRunDelay || trip.Count != 1 ||
		trip.Until.Sub(trip.Time) != 5*time.Minute || trip.Time.Sub(began) > 2*time.Second {
		t.Errorf("trip %+v, the pin was bad from %v on", trip, began)
	}
	if status.State != v1alpha1.LeverBlocked || status.Reason != v1alpha1.ReasonGuardTripped || !strings.Contains(status.Message, trip.Evidence()) {
		t.Errorf("status %+v", status)
	}
	s.rounds(1)
	if got := s.mask(); got != "0-31" {
		t.Errorf("vCPU on %s after the trip", got)
	}
	// The plan is the same, and so is another that binds it.
	s.rounds(100)
	s.pinned("r2")
	s.rounds(100)
	if got := s.mask(); got != "0-31" || len(s.board.Latest().Rates.Trips) != 1 || s.status().Message != status.Message {
		t.Errorf("vCPU on %s, trips %+v, status %+v", got, s.board.Latest().Rates.Trips, s.status())
	}
	s.rounds(110)
	trips := s.board.Latest().Rates.Trips
	if len(trips) != 1 || trips[0].Count != 2 || trips[0].Until.Sub(trips[0].Time) != 10*time.Minute || s.mask() != "0-31" {
		t.Errorf("after the cool-down: vCPU on %s, trips %+v", s.mask(), trips)
	}
}

// No pin has to answer for the waiting of a VM whose own limit throttles it.
func TestAPinOfAThrottledVMStays(t *testing.T) {
	s := guardedHost(t)
	if err := s.host.SetLimit(vm7, 0.4); err != nil {
		t.Fatal(err)
	}
	s.rounds(60) // until the agent has seen the limit
	rates := s.board.Latest().Rates.VM(vm7)
	if trips := s.board.Latest().Rates.Trips; len(trips) > 0 || s.mask() != "2" {
		t.Errorf("vCPU on %s, trips %+v", s.mask(), trips)
	}
	if rates.Limit == nil || rates.Limit.Cores != 0.4 || rates.Limit.WaitCores < 0.3 || rates.VCPUs[0].WaitCores > 0.05 {
		t.Errorf("limit %+v, vCPU %+v", rates.Limit, rates.VCPUs[0])
	}
}

// Where no CPU idles, nothing would be better for a thread that nobody binds.
func TestAPinOnAFullNodeStays(t *testing.T) {
	s := newSimulated(t, sim.Config{Shape: sim.Shape{CoresPerPackage: 4}})
	s.pinned("r1")
	s.rounds(30)
	s.hog(1)
	s.rounds(30)
	if trips := s.board.Latest().Rates.Trips; len(trips) > 0 || s.mask() != "2" {
		t.Errorf("vCPU on %s, trips %+v", s.mask(), trips)
	}
}

// A ring that has no room for bunches.
func TestBufferingThatLosesPacketsIsUndone(t *testing.T) {
	s := newSimulated(t, sim.Config{Shape: sim.Shape{CoresPerPackage: 32}})
	err := errors.Join(
		s.host.SetCompute(vm7, sim.Compute{}),
		s.host.SetTraffic(vm7, sim.Traffic{ToVM: 40_000 * 8 * 500, PacketBytes: 500}),
	)
	if err != nil {
		t.Fatal(err)
	}
	c := s.cluster
	c.plan = &v1alpha1.NodePlan{Spec: v1alpha1.NodePlanSpec{Revision: "r1", Apply: true, VMs: []v1alpha1.VMPlan{{
		VMReference: v1alpha1.VMReference{Namespace: "shop", Name: "vm-7", PodUID: types.UID(vm7)},
		Buffering:   &v1alpha1.BufferingAction{WindowMicroseconds: ptr.To[int32](1000), OnPacketsPerSecond: 10_000},
	}}}}
	s.rounds(30)
	if status, trips := s.status(), s.board.Latest().Rates.Trips; status.State != v1alpha1.LeverInForce || len(trips) > 0 {
		t.Fatalf("status %+v, trips %+v", status, trips)
	}
	if err := s.host.SetRing(vm7, 32); err != nil {
		t.Fatal(err)
	}
	s.rounds(2)
	status, trips := s.status(), s.board.Latest().Rates.Trips
	if len(trips) != 1 || trips[0].Symptom != model.SymptomRingOverrun || status.Reason != v1alpha1.ReasonGuardTripped || s.board.Latest().InForce[v1alpha1.LeverBuffering] != 0 {
		t.Errorf("status %+v, trips %+v, %d VMs buffered", status, trips, s.board.Latest().InForce[v1alpha1.LeverBuffering])
	}
	kind := publish.TripKind{Lever: v1alpha1.LeverBuffering, Symptom: model.SymptomRingOverrun}
	if counts := s.board.Latest().Trips; len(counts) != 1 || counts[kind] != 1 {
		t.Errorf("counted %v", counts)
	}
	// A next agent finds it in the journal.
	later := s.host.Now().Add(time.Minute)
	next := newGuarded(s.journal.Content().Trips, nil, later)
	if trip, undone := next.Undone(vm7, v1alpha1.LeverBuffering, later); !undone || trip != trips[0] {
		t.Errorf("the next agent knows %+v", trip)
	}
}

// A VM of pool Compute waits while CPUs of pool Network idle: that is what the pools are for.
// One of pool Network has nothing to wait for.
func TestPoolsAreKeptThoughComputeWaits(t *testing.T) {
	for pool, want := range map[v1alpha1.Pool]int{v1alpha1.PoolCompute: 0, v1alpha1.PoolNetwork: 1, "": 1} {
		s := guardedHost(t)
		c := s.cluster
		c.change(func() {
			plan := c.plan.DeepCopy()
			plan.Spec.NetworkCPUs, plan.Spec.ComputeCPUs = "0-1,3-31", "2"
			plan.Spec.VMs[0].Pool = pool
			c.plan = plan
		})
		s.rounds(5)
		s.hog(1)
		s.rounds(30)
		if trips := s.board.Latest().Rates.Trips; len(trips) != want {
			t.Errorf("pool %q: trips %+v, want %d", pool, trips, want)
		}
	}
}

// What packets show of buffering follows from what was done to them, not from orders.
func TestWhetherPacketsWereHeld(t *testing.T) {
	const second = time.Second
	tap := func(active time.Duration, flood *model.Flood) []host.BufferSample {
		return []host.BufferSample{{Name: "tap0", Active: active, Flood: flood}}
	}
	for name, test := range map[string]struct {
		old, now []host.BufferSample
		setting  symptoms.Setting
		want     symptoms.Setting
	}{
		"held":                  {tap(second, nil), tap(2*second, nil), symptoms.On, symptoms.On},
		"held for a part":       {tap(second, nil), tap(second+second/4, nil), symptoms.On, symptoms.Unsure},
		"came too slowly":       {tap(second, nil), tap(second, nil), symptoms.On, symptoms.Off},
		"in a flood":            {tap(second, &model.Flood{}), tap(2*second, &model.Flood{}), symptoms.On, symptoms.Unsure},
		"a flood begins":        {tap(second, nil), tap(2*second, &model.Flood{}), symptoms.On, symptoms.Unsure},
		"a flood ends":          {tap(second, &model.Flood{}), tap(second, nil), symptoms.On, symptoms.Unsure},
		"cannot be read":        {tap(second, nil), nil, symptoms.On, symptoms.Unsure},
		"could not be read":     {nil, tap(second, nil), symptoms.On, symptoms.Unsure},
		"counts anew":           {tap(second, nil), tap(0, nil), symptoms.On, symptoms.Unsure},
		"the lever is off":      {nil, nil, symptoms.Off, symptoms.Off},
		"the lever was changed": {tap(second, nil), tap(2*second, nil), symptoms.Unsure, symptoms.Unsure},
	} {
		at := time.Unix(1000, 0)
		old, vm := &sample.VM{At: at, Buffered: test.old}, &sample.VM{At: at.Add(second), Buffered: test.now}
		if test.now == nil {
			vm.BufferedErr = errors.New("no counters")
		}
		if _, got := packets(old, vm, test.setting); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}
