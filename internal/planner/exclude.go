package planner

import (
	"slices"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// exclude tells the agent which CPUs the masks of emulator threads leave out of their
// last-level caches, when there are such masks: it leaves narrower ones unapplied.
func (w *work) exclude(cpus units.CPUSet) {
	if slices.ContainsFunc(w.VMs, func(vm model.VMPlan) bool { return !vm.Threads.Emulator.IsEmpty() }) {
		w.Excluded = cpus
	}
}
