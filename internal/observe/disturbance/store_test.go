package disturbance

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/interference"
	"github.com/joulevirt/joulevirt/internal/units"
)

func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// recorder is a detector that says CoRunner from its second sample on, and keeps what
// it was given.
type recorder struct {
	samples []interference.Sample
}

func (r *recorder) Add(s interference.Sample) { r.samples = append(r.samples, s) }

func (r *recorder) Disturbance() model.Disturbance {
	if len(r.samples) < 2 {
		return model.Disturbance{}
	}
	return model.Disturbance{Verdict: model.InterferenceCoRunner, Since: r.samples[1].Time}
}

func ratesOf(node string, second int, pods ...string) *model.NodeRates {
	rates := &model.NodeRates{Node: node, Time: noon().Add(time.Duration(second) * time.Second), IntervalSeconds: 1}
	for _, pod := range pods {
		rates.VMs = append(rates.VMs, model.VMRates{PodUID: pod})
	}
	return rates
}

// every VM is known, without a service level.
func every() Circumstances {
	return Circumstances{MaxSteal: func(string) (units.Cores, bool) { return 0, true }}
}

func TestStore(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(noon())
	var made []*recorder
	store := NewStore(clock, time.Minute, func() Detector {
		made = append(made, &recorder{})
		return made[len(made)-1]
	})
	of := Circumstances{Nested: true, MaxSteal: func(pod string) (units.Cores, bool) {
		maxSteal, known := map[string]units.Cores{"a": 0.08, "b": 0.05}[pod]
		return maxSteal, known
	}}
	if diff := cmp.Diff(model.Disturbance{}, store.Of("a")); diff != "" {
		t.Errorf("a new store knows %s", diff)
	}
	store.Add(ratesOf("n", 0, "a", "b", "nobody's"), of)
	store.Add(ratesOf("n", 15, "a"), of) // b is missed
	store.Add(ratesOf("m", 15, "a"), of) // says of a VM what is not its own
	want := []interference.Sample{
		{Time: noon(), Seconds: 1, Nested: true, MaxSteal: 0.08},
		{Time: noon().Add(15 * time.Second), Seconds: 1, Nested: true, MaxSteal: 0.08},
	}
	for i := range want {
		want[i].Rates = &model.VMRates{PodUID: "a"}
	}
	if diff := cmp.Diff(want, made[0].samples); diff != "" {
		t.Errorf("samples of a (-want +got):\n%s", diff)
	}
	if got := store.Of("a"); got.Verdict != model.InterferenceCoRunner || store.Of("b").Verdict != "" {
		t.Errorf("a %+v, b %+v", got, store.Of("b"))
	}
	clock.SetTime(noon().Add(time.Minute))
	store.Sweep()
	store.Add(ratesOf("n", 60, "b"), of)
	if store.Len() != 2 || store.Of("b").Verdict != model.InterferenceCoRunner {
		t.Errorf("%d VMs, b %+v: want it followed across the rounds in which it was missed", store.Len(), store.Of("b"))
	}
	clock.SetTime(noon().Add(time.Minute + time.Second))
	if got := store.Of("a"); got.Verdict != "" {
		t.Errorf("a was not heard of for a minute: %+v", got)
	}
	store.Sweep()
	if store.Len() != 1 {
		t.Errorf("%d VMs are followed, want b", store.Len())
	}
	store.Add(ratesOf("n", 61, "a"), of)
	if got := store.Of("a"); got.Verdict != "" || len(made) != 3 {
		t.Errorf("a came back with %+v", got)
	}
}

// A verdict's time is that at which the manager heard of it, and stays while the
// verdict does: the clocks of agents may say anything.
func TestVerdictsAreSinceTheyWereHeard(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(noon())
	store := NewStore(clock, time.Minute, func() Detector { return &recorder{} })
	const century = 100 * 365 * 24 * 3600
	for round := range 4 {
		clock.SetTime(noon().Add(time.Duration(round) * 15 * time.Second))
		store.Add(ratesOf("n", century+15*round, "a"), every())
	}
	want := model.Disturbance{Verdict: model.InterferenceCoRunner, Since: noon().Add(15 * time.Second)}
	if diff := cmp.Diff(want, store.Of("a")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStoreIsSafeForConcurrentUse(t *testing.T) {
	store := NewStore(testingclock.NewFakePassiveClock(noon()), time.Minute, func() Detector { return &recorder{} })
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			node := fmt.Sprintf("n%d", n)
			for second := range 50 {
				store.Add(ratesOf(node, second, node+"a", node+"b"), every())
				store.Of("n0a")
				store.Sweep()
			}
		})
	}
	all.Wait()
	if store.Len() != 16 {
		t.Errorf("%d VMs, want 16", store.Len())
	}
}

// A VM's history does not grow: those of 20,000 VMs fit into the manager's memory.
func TestHistoriesAreBounded(t *testing.T) {
	const vms, most = 500, 2560
	clock := testingclock.NewFakePassiveClock(noon())
	store := NewStore(clock, time.Minute, func() Detector { return &interference.History{} })
	hear := func(from, to int) {
		for round := from; round < to; round++ {
			rates := ratesOf("n", 15*round)
			for i := range vms {
				rates.VMs = append(rates.VMs, model.VMRates{
					PodUID: fmt.Sprintf("pod-%d", i), AllowedCPUs: units.NewCPUSet(0, 1), Taps: make([]model.TapRates, 4),
					VCPUs: []model.VCPURates{{ThreadRates: model.ThreadRates{RunCores: 0.5, WaitCores: 0.2}}},
				})
			}
			store.Add(rates, every())
		}
	}
	before := heap()
	hear(0, 1)
	first := heap()
	hear(1, 60)
	if perVM := (heap() - before) / vms; perVM > most {
		t.Errorf("%d bytes a VM, %d after its first sample; want %d at most", perVM, (first-before)/vms, most)
	}
	if got := store.Of("pod-0"); got.Verdict != model.InterferenceCoRunner {
		t.Errorf("after a quarter of an hour of waiting: %+v", got)
	}
}

func heap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
