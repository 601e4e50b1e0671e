package proofs

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// BenchmarkThousandNodes takes in one look at 1,000 simulated nodes of ten classes, on which
// three levers are held back, after two hours of them: what is heard, what is decided, what
// statuses tell, and what is stored.
func BenchmarkThousandNodes(b *testing.B) {
	f := &fleet{now: noon(), stores: []*Store{NewStore()}, metered: true, approved: true}
	s := f.lead()
	if err := s.Load(testPolicy, nil, nil); err != nil {
		b.Fatal(err)
	}
	var units []proof.Unit
	for i := range 1000 {
		n := &node{name: fmt.Sprintf("node-%03d", i), random: rand.New(rand.NewPCG(1, uint64(i))), totals: model.Totals{Since: noon()}, source: model.SourceRAPL}
		f.nodes = append(f.nodes, n)
		units = append(units, proof.Unit{
			Name: n.name, Nodes: []string{n.name}, Ready: true, Approved: true,
			Class:      verify.Class{CPUModel: fmt.Sprint("made up ", i%10), Kernel: "6.12", Workload: "Mixed"},
			Meter:      verify.Meter{Interval: pullEvery, Freshness: pullEvery},
			Candidates: []proof.Candidate{{Lever: model.LeverAffinity}, {Lever: model.LeverBuffering}, {Lever: model.LeverShaping}},
		})
	}
	hear := func() {
		for _, n := range f.nodes {
			s.Hear(n.name, f.heard(n, f.now), f.now)
		}
	}
	round := func() { s.Round(testPolicy, units, proof.Settings{HoldBack: 0.1, Confidence: 0.95}, f.now) }
	pass := func(length time.Duration) {
		for i, n := range f.nodes {
			for range int(length / step) {
				n.live(f.now)
			}
			units[i].Has = nil
			stands, _ := s.Of(testPolicy, n.name)
			for _, p := range stands {
				if p.Schedule != nil {
					units[i].Has = append(units[i].Has, *p.Schedule)
				}
			}
			n.plan = units[i].Has
		}
		f.now = f.now.Add(length)
	}
	for range 2 * 60 {
		hear()
		round()
		pass(time.Minute)
	}
	measure := func(name string, do func()) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				do()
				b.StopTimer()
				pass(pullEvery)
				b.StartTimer()
			}
		})
	}
	measure("hear", hear)
	measure("round", func() { hear(); round() })
	measure("tell", func() {
		s.View(testPolicy, func(p *proof.Proofs, l *ledger.Ledger) { p.Standings(); l.Statement(ledger.AllTime, false, 0.95) })
	})
	measure("effects", func() {
		s.View(testPolicy, func(p *proof.Proofs, _ *ledger.Ledger) {
			for _, n := range f.nodes {
				for _, stands := range p.Of(n.name) {
					p.Effect(n.name, stands.Lever)
				}
			}
		})
	})
	measure("save", func() { s.Save(testPolicy) })
}
