package ledger_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
)

// alone is a block whose error is of it alone.
func alone(node string, at int) ledger.Block {
	b := block(node, at)
	b.Effect, b.Chance, b.ChanceFreedom = verify.Shrunk{Log: b.Effect.Log}, 0.02, 12
	return b
}

// TestChanceAddsUpBySquares: errors of blocks alone are independent, of one node too, but for
// how large they are: that is not known any better from many blocks.
func TestChanceAddsUpBySquares(t *testing.T) {
	l, variance := ledger.New(), 0.0
	for at := range 30 {
		b := alone(fmt.Sprint("node", at%2), at)
		mustBook(t, l, b)
		one := float64(b.Joules) * 1.1 * b.Chance
		variance += one * one
	}
	s := l.Statement(ledger.AllTime, false, confidence)
	wantRange(t, "all time", s.Gross, s.Gross.Value, verify.Quantile(12, confidence)*math.Sqrt(variance))
	one := l.Node("node1", lever, false, confidence)
	wantRange(t, "one node", one, s.Gross.Value/2, verify.Quantile(12, confidence)*math.Sqrt(variance/2))
	again, err := ledger.Load(l.Save())
	if err != nil {
		t.Fatal(err)
	}
	alike(t, "what was stored", l, again)

	// A block that an effect tells of as well errs by both.
	both := block("node2", 40)
	both.Chance, both.ChanceFreedom = 0.02, 12
	lone := ledger.New()
	mustBook(t, lone, both)
	var errors verify.ErrorSum
	for _, part := range []struct{ stdErr, freedom float64 }{{0.01, 20}, {0.005, 9}, {0.02, 12}} {
		errors.Add(part.stdErr*float64(both.Joules)*1.1, part.freedom)
	}
	got := lone.Statement(ledger.AllTime, false, confidence).Gross
	wantRange(t, "both", got, got.Value, errors.Half(confidence))
}

func TestChanceIsPutTogether(t *testing.T) {
	one, two, want := ledger.New(), ledger.New(), ledger.New()
	for at := range 8 {
		b := alone("a", at)
		mustBook(t, want, b)
		if at < 5 {
			mustBook(t, one, b)
		}
		if at > 2 {
			mustBook(t, two, b)
		}
	}
	if err := two.Rebase(one.Save()); err != nil {
		t.Fatal(err)
	}
	alike(t, "what two managers booked", want, two)
}

func TestChanceThatCannotBe(t *testing.T) {
	for name, spoil := range map[string]func(*ledger.Block){
		"none":       func(b *ledger.Block) { b.Chance = 0 },
		"no number":  func(b *ledger.Block) { b.Chance = math.NaN() },
		"below none": func(b *ledger.Block) { b.Chance = -1 },
		"endless":    func(b *ledger.Block) { b.Chance = math.Inf(1) },
		"too large":  func(b *ledger.Block) { b.Chance = 101 },
		"no freedom": func(b *ledger.Block) { b.ChanceFreedom = 0 },
	} {
		l, b := ledger.New(), alone("a", 0)
		spoil(&b)
		if cause := l.Book(b, b.To); cause != ledger.NoEvidence {
			t.Errorf("%s: is booked as %q", name, cause)
		}
	}
}
