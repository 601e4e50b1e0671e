package tuning

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

func TestStoreIsSafeForConcurrentUse(t *testing.T) {
	h := newHeard()
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			pod := fmt.Sprintf("pod-%d", n)
			for round := range 50 {
				h.Add(ratesOf(pod, model.WindowOf(time.Duration(round)*20*us), drops(units.PacketsPerSecond(round))), every())
				h.Of("pod-0", profile())
				h.Sweep()
			}
		})
	}
	all.Wait()
	if h.Len() != 8 {
		t.Errorf("%d VMs, want 8", h.Len())
	}
}

// What is known of a VM does not grow: that of 20,000 VMs fits into the manager's memory.
func TestMemoryIsBounded(t *testing.T) {
	const vms, most = 200, 4096
	h := newHeard()
	before := heap()
	for round := range 300 {
		h.clock.SetTime(h.clock.Now().Add(15 * time.Second))
		for i := range vms {
			window := model.WindowOf(125 * us << (round / 5 % 5) >> 1)
			h.Add(ratesOf(fmt.Sprintf("pod-%d", i), window, func(v *model.VMRates) {
				v.Taps[0].ToVM.PacketsPerSecond = units.PacketsPerSecond(int(10_000) << (round % 12))
			}), every())
		}
	}
	if perVM := (heap() - before) / vms; perVM > most {
		t.Errorf("%d bytes a VM, want %d at most", perVM, most)
	}
	if h.Len() != vms {
		t.Errorf("%d VMs", h.Len())
	}
}

func heap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
