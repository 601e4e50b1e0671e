package controllers

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// TestLive: a leader tells of a node what its metrics do, and one that stands by knows
// nothing.
func TestLive(t *testing.T) {
	var live Live
	if live.Potential("a", 0.95) != nil || live.Proven("p", "a") != nil || live.Booked("p", "a", 0.95) != nil {
		t.Error("a manager that stands by knows of a node")
	}
	parts := &reconcilerParts{memory: provenMemory(t, statusTime()), potentials: newPotentialStore(), savings: &savingsSources{}}
	parts.potentials.nodes["a"] = potentialOfNode{levers: []model.Potential{
		{Lever: model.LeverAffinity, Considered: 2}, {Lever: model.LeverBuffering, Watts: 1, StdErr: 0.5, VMs: 1},
	}}
	buffering := ledger.Range{Value: 6, Low: 4, High: 8}
	parts.savings.proven.put("p", []provenOfUnit{{"a", model.LeverBuffering, buffering}, {"b", model.LeverAffinity, buffering}})
	live.parts.Store(parts)
	if diff := cmp.Diff(map[model.Lever]ledger.Range{model.LeverAffinity: {}}, live.Potential("a", 0.95)); diff != "" {
		t.Errorf("potential (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[model.Lever]ledger.Range{model.LeverBuffering: buffering}, live.Proven("p", "a")); diff != "" {
		t.Errorf("proven (-want +got):\n%s", diff)
	}
	var want []ledger.UnitSaving
	parts.memory.View("p", func(_ *proof.Proofs, l *ledger.Ledger) {
		for _, of := range l.Units(0.95) {
			if of.Unit == "a" {
				want = append(want, of)
			}
		}
	})
	if diff := cmp.Diff(want, live.Booked("p", "a", 0.95)); diff != "" || len(want) == 0 {
		t.Errorf("booked (-want +got):\n%s", diff)
	}
}
