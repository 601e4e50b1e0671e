package proofs

import (
	"fmt"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// TestNodesWithEverNewNames do not fill the ledger. One that is away for a while is the same
// when it comes back, and what those saved that are gone stays in the sums.
func TestNodesWithEverNewNames(t *testing.T) {
	const days, nodes = 30, 20
	s, now := NewStore(), noon()
	if err := s.Load(testPolicy, nil); err != nil {
		t.Fatal(err)
	}
	saved := func(node string) (watts float64) {
		s.View(testPolicy, func(_ *proof.Proofs, l *ledger.Ledger) {
			watts = l.Node(node, v1alpha1.LeverAffinity, false, 0.95).Value
		})
		return watts
	}
	book := func(node string) {
		s.View(testPolicy, func(_ *proof.Proofs, l *ledger.Ledger) {
			cause := l.Book(ledger.Block{
				Node: node, Lever: v1alpha1.LeverAffinity, From: now.Add(-10 * time.Minute), To: now, On: true, Class: testClass(),
				Effect:   verify.Shrunk{Log: -0.05, Own: 0.01, Freedom: 30},
				Measured: ledger.Measured{Seconds: 500, Joules: units.Joules(1e5 + now.Sub(noon()).Hours())},
			}, now)
			if cause != "" {
				t.Fatalf("%s is not booked: %s", node, cause)
			}
		})
	}
	largest := 0
	for day := range days {
		book("stays-booked")
		if day == 0 {
			book("stays-governed")
		}
		for n := range nodes {
			book(fmt.Sprintf("worker-%d-%d", day, n))
		}
		now = now.Add(24 * time.Hour)
		s.Round(testPolicy, []proof.Unit{{Name: "stays-governed", Nodes: []string{"stays-governed"}, Class: testClass()}}, proof.Settings{}, now)
		if saved(fmt.Sprintf("worker-%d-0", day)) == 0 {
			t.Fatalf("day %d: what is away for a day is forgotten", day)
		}
		stored, _, _ := s.Save(testPolicy)
		largest = max(largest, len(stored))
	}
	if saved("stays-booked") == 0 || saved("stays-governed") == 0 || saved("worker-0-0") != 0 {
		t.Errorf("booked %v J, governed %v J, gone %v J", saved("stays-booked"), saved("stays-governed"), saved("worker-0-0"))
	}
	if largest > 10_000 {
		t.Errorf("the ledger of %d nodes a day has %d bytes", nodes, largest)
	}
	all, _ := booked(t, s, false)
	if want := 500. * (days*(nodes+1) + 1); all.Lines[0].Seconds != want {
		t.Errorf("%v s are in the sums, want %v", all.Lines[0].Seconds, want)
	}
}

// TestBlocksOfMoreThanThereIs: what a unit cannot have drawn is not booked of it.
func TestBlocksOfMoreThanThereIs(t *testing.T) {
	for most, refused := range map[units.Watts]bool{0: false, 90: true, 400: false} {
		f := newFleet(t, 7, 2, -0.08)
		f.approved, f.most = true, most
		f.run(3 * time.Hour)
		all, causes := booked(t, f.lead(), false)
		if (causes[ledger.Implausible] > 0) != refused || len(all.Lines) > 0 == refused {
			t.Errorf("at most %v W: %+v are booked, and not booked %v", most, all.Lines, causes)
		}
	}
}
