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
	wantRange(t, "all time", s.Saved, s.Saved.Value, verify.Quantile(12, confidence)*math.Sqrt(variance))
	one := l.Node("node1", lever, false, confidence)
	wantRange(t, "one node", one, s.Saved.Value/2, verify.Quantile(12, confidence)*math.Sqrt(variance/2))
	alike(t, "what was stored", l, load(t, save(t, l)))

	// A block that an effect tells of as well errs by both.
	both := block("node2", 40)
	both.Chance, both.ChanceFreedom = 0.02, 12
	lone := ledger.New()
	mustBook(t, lone, both)
	var errors verify.ErrorSum
	for _, part := range []struct{ stdErr, freedom float64 }{{0.01, 20}, {0.005, 9}, {0.02, 12}} {
		errors.Add(part.stdErr*float64(both.Joules)*1.1, part.freedom)
	}
	got := lone.Statement(ledger.AllTime, false, confidence).Saved
	wantRange(t, "both", got, got.Value, errors.Half(confidence))
}
