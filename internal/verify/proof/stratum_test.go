package proof_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// TestEachStratumIsBookedByItself: of a lever whose effect is another in each stratum, what is
// booked of each is what the lever did in it; where nothing was held back nothing is claimed.
// The manager restarts after each block.
func TestEachStratumIsBookedByItself(t *testing.T) {
	const strata, blocks, missing, noise = 8, 20, 6, 0.001
	effect := func(stratum int) float64 { return -0.02 * float64(1+stratum%3) }
	u := proof.Unit{
		Name: "a", Nodes: []string{"a"}, Class: verify.Class{CPUModel: "Xeon"}, Ready: true, Approved: true,
		Meter: verify.Meter{Interval: time.Second}, Candidates: []proof.Candidate{{Lever: v1alpha1.LeverAffinity, Watts: 10}},
	}
	p, random := proof.New(), rand.New(rand.NewPCG(1, 2))
	p.Round([]proof.Unit{u}, proof.Settings{HoldBack: 0.05, Confidence: 0.95}, noon)
	s := p.Of("a")[0].Schedule
	var booked []ledger.Block
	for b := range strata * blocks {
		o := verify.Outcome{Unit: "a", Block: b, On: s.On[b], Seconds: 300, Work: 1e6}
		log := noise * random.NormFloat64()
		if o.On {
			log += effect(b / blocks)
		} else if b/blocks == missing {
			o.Excluded = string(ledger.MeterFailed)
		}
		o.Joules = units.Joules(30_000 * math.Exp(log))
		from := s.Start.Add(time.Duration(b) * s.Block)
		p.Take(proof.Closed{Lever: s.Lever, Seed: s.Seed, Start: s.Start, From: from, To: from.Add(s.Block), Outcome: o})
		booked = append(booked, p.Bookings()...)
		p = load(t, save(t, p))
	}
	seconds, shares := 0.0, make([]float64, strata)
	for i := range booked {
		b := &booked[i]
		if seconds += b.Seconds; !b.On {
			continue
		}
		stratum := int(b.From.Sub(s.Start)/s.Block) / blocks
		switch known := b.Chance > 0; {
		case known != (stratum != missing):
			t.Errorf("stratum %d is booked: %v: %+v", stratum, known, b)
		case known && math.Abs(b.Effect.Log-effect(stratum)) > 6*noise:
			t.Errorf("stratum %d is booked by %v, want %v", stratum, b.Effect.Log, effect(stratum))
		case known:
			shares[stratum] += float64(b.Joules)
		}
	}
	// All is told once.
	if want := float64(300 * (strata*blocks - 1)); seconds != want {
		t.Errorf("blocks of %v s are told, want %v", seconds, want)
	}
	for stratum, joules := range shares {
		var squares, chance float64
		for i := range booked {
			if b := &booked[i]; b.On && int(b.From.Sub(s.Start)/s.Block)/blocks == stratum {
				part := float64(b.Joules) * b.Chance
				squares += part * part
				chance = b.Chance * math.Sqrt(float64(b.Joules)/joules)
			}
		}
		if whole := chance * joules; stratum != missing && math.Abs(math.Sqrt(squares)-whole) > 1e-3*whole {
			t.Errorf("stratum %d errs by %v J, want %v as one", stratum, math.Sqrt(squares), whole)
		}
	}
}

// TestMissingBlocksAreTold: where on blocks of a hold-back are missing, and off blocks are not,
// nothing is booked by it any more and its proof says why, after a restart of the manager too.
// On other units it goes on.
func TestMissingBlocksAreTold(t *testing.T) {
	const says = "it may be the lever that ends them"
	f := oneLever(t, 1, 4, -0.1)
	f.run(24 * time.Hour)
	if p := f.of("a-0", v1alpha1.LeverAffinity); p.Stance != model.StanceAdopted || strings.Contains(p.Message, says) {
		t.Fatalf("before: %+v", p)
	}
	blocks := 0
	f.excluded = func(unit string, on bool) ledger.Cause {
		if blocks++; unit == "a-0" && on && blocks%3 == 0 {
			return ledger.AgentRestarted
		}
		return ""
	}
	f.run(5 * 24 * time.Hour)
	f.reload()
	for _, u := range f.units {
		p := f.of(u.Name, v1alpha1.LeverAffinity)
		if told := strings.Contains(p.Message, says); p.Stance != model.StanceAdopted || told != (u.Name == "a-0") {
			t.Errorf("%s: %+v", u.Name, p)
		}
	}
	if f.booked[ledger.NoEvidence] == 0 || f.booked[ledger.AgentRestarted] == 0 {
		t.Errorf("booked %v", f.booked)
	}
}
