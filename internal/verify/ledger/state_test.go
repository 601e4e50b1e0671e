package ledger_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/verify/ledger"
)

// alike tells whether two ledgers say the same, but for rounding.
func alike(t *testing.T, what string, a, b *ledger.Ledger) {
	t.Helper()
	for _, month := range append(a.Months(), ledger.AllTime) {
		for _, modelled := range []bool{false, true} {
			if diff := cmp.Diff(a.Statement(month, modelled, confidence), b.Statement(month, modelled, confidence), rounding()); diff != "" {
				t.Errorf("%s: %s, modelled %v (-want +got):\n%s", what, month, modelled, diff)
			}
		}
	}
}

// rounding is what errors lose that are kept in single precision.
func rounding() cmp.Option {
	return cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 1e-5*max(1, math.Abs(a)) })
}

func TestTheOrderOfBookingDoesNotMatter(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var blocks []ledger.Block
	for at := range 30 {
		for n := range 5 {
			b := block(fmt.Sprint("node", n), at+24*20)
			b.On, b.Modelled = at%4 != 3, n == 4
			b.Effect.Own = 0.01 + 0.005*float64(at/10)
			blocks = append(blocks, b)
		}
	}
	want := ledger.New()
	mustBook(t, want, blocks...)
	for range 20 {
		got := ledger.New()
		mixed := append([]ledger.Block(nil), blocks...)
		// Blocks of a node come some late, those of different nodes anyhow.
		for i := range mixed {
			j := min(len(mixed)-1, i+random.IntN(25))
			mixed[i], mixed[j] = mixed[j], mixed[i]
		}
		for _, b := range mixed {
			if cause := got.Book(b, b.To.Add(10*24*time.Hour)); cause != "" && cause != ledger.TooOld {
				t.Fatalf("%s at %s: %s", b.Node, b.From, cause)
			}
		}
		alike(t, "in another order", want, got)
	}
}

func save(t *testing.T, l *ledger.Ledger) []byte {
	t.Helper()
	stored, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

func load(t *testing.T, stored []byte) *ledger.Ledger {
	t.Helper()
	l := ledger.New()
	if err := json.Unmarshal(stored, l); err != nil {
		t.Fatal(err)
	}
	return l
}
