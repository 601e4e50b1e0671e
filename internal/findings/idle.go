package findings

import (
	"maps"
	"sync"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Idle remembers since when VMs do nothing. A new leader begins anew.
type Idle struct {
	mu  sync.Mutex
	vms map[string]idleVM // by the UID of the launcher pod
	// swept is when VMs were dropped last that were not heard of for longer than forgotten.
	swept time.Time
}

type idleVM struct{ since, heard time.Time }

const (
	// What a guest's own timers and neighbours of its network cause is less.
	leastCores   units.Cores            = 0.03
	leastPackets units.PacketsPerSecond = 20
	// forgotten is after what time without rates a VM counts as new.
	forgotten = time.Hour
)

// Look takes in a VM's rates, and returns for how long all that were taken in showed no work.
func (i *Idle) Look(vm *model.VMRates, now time.Time) time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.vms == nil {
		i.vms = map[string]idleVM{}
	}
	if now.Sub(i.swept) > forgotten {
		i.swept = now
		maps.DeleteFunc(i.vms, func(_ string, v idleVM) bool { return now.Sub(v.heard) > forgotten })
	}
	was, known := i.vms[vm.PodUID]
	if !known || works(vm) {
		was.since = now
	}
	was.heard = now
	i.vms[vm.PodUID] = was
	return now.Sub(was.since)
}

func works(vm *model.VMRates) bool {
	cores := vm.Emulator.RunCores + vm.IOThreads.RunCores + vm.Vhost.RunCores + vm.Other.RunCores
	for i := range vm.VCPUs {
		cores += vm.VCPUs[i].RunCores
	}
	var packets units.PacketsPerSecond
	for i := range vm.Taps {
		packets += vm.Taps[i].ToVM.PacketsPerSecond + vm.Taps[i].FromVM.PacketsPerSecond
	}
	return cores >= leastCores || packets >= leastPackets
}
