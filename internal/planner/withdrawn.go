package planner

import "github.com/joulevirt/joulevirt/internal/model"

// withdrawal of a lever from a VM, or from all VMs of the node, which lasts. Nil: none.
func (w *work) withdrawal(podUID string, lever model.Lever) *model.Withdrawal {
	for i := range w.Withdrawn {
		of := &w.Withdrawn[i]
		if of.Lever == lever && (of.PodUID == podUID || of.PodUID == "") && of.Lasts(w.now) {
			return of
		}
	}
	return nil
}
