package ledger_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
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

func TestSavedAndLoadedIsTheSame(t *testing.T) {
	l := ledger.New()
	for at := range 60 {
		b := block(fmt.Sprint("node", at%7), 12*at)
		b.On, b.Modelled = at%3 > 0, at%5 == 0
		b.Class.Kernel = fmt.Sprint("6.", at%4)
		if at%11 == 0 {
			b.Excluded = ledger.MeterFailed
		}
		l.Book(b, b.To)
	}
	stored := l.Save()
	loaded, err := ledger.Load(stored)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(loaded.Save(), stored) {
		t.Error("what was loaded is saved as something else")
	}
	if diff := cmp.Diff(l.Causes(), loaded.Causes()); diff != "" {
		t.Errorf("causes (-before +after):\n%s", diff)
	}
	for at := 60; at < 90; at++ {
		b := block(fmt.Sprint("node", at%7), 12*at)
		if l.Book(b, b.To) != loaded.Book(b, b.To) {
			t.Fatalf("the ledgers differ about block %d", at)
		}
	}
	if !bytes.Equal(loaded.Save(), l.Save()) {
		t.Error("a manager that was restarted books something else than one that was not")
	}
}

func TestTwoManagersNeitherLoseNorDouble(t *testing.T) {
	var blocks []ledger.Block
	for at := range 12 {
		for n := range 3 {
			blocks = append(blocks, block(fmt.Sprint("node", n), at))
		}
	}
	want := ledger.New()
	mustBook(t, want, blocks...)

	before := ledger.New()
	mustBook(t, before, blocks[:9]...)
	stored := before.Save()
	one, err := ledger.Load(stored)
	if err != nil {
		t.Fatal(err)
	}
	two, err := ledger.Load(stored)
	if err != nil {
		t.Fatal(err)
	}
	// Both watch for a while, and each saw what the other did not.
	mustBook(t, one, blocks[9:24]...)
	mustBook(t, two, blocks[15:21]...)
	mustBook(t, two, blocks[24:]...)
	stored = two.Save()
	for range 2 {
		if err := one.Rebase(stored); err != nil {
			t.Fatal(err)
		}
		alike(t, "after a failover", want, one)
	}
	// What is stored is not booked again: what came in while it was on its way is.
	late := block("node0", 20)
	one.Save()
	mustBook(t, one, late)
	mustBook(t, want, late)
	one.Stored()
	if err := one.Rebase(want.Save()); err != nil {
		t.Fatal(err)
	}
	alike(t, "after it was stored", want, one)
	if got := one.Causes()[ledger.AlreadyBooked]; got != 1 {
		t.Errorf("%d blocks are told twice, want the one that was pending", got)
	}
}

func TestLoadRefuses(t *testing.T) {
	l := ledger.New()
	mustBook(t, l, block("a", 0))
	good := l.Save()
	edited := bytes.Clone(good)
	edited[len(edited)/2] ^= 1
	for name, test := range map[string]struct {
		stored []byte
		want   string
	}{
		"nothing": {nil, "is none"}, "another": {[]byte("joulevirt-ledger-9\nabcdefgh"), "another version"},
		"cut": {good[:len(good)-7], "checksum"}, "edited": {edited, "checksum"},
	} {
		if _, err := ledger.Load(test.stored); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
		if err := l.Rebase(test.stored); err == nil || !bytes.Equal(l.Save(), good) {
			t.Errorf("%s: the ledger is rebased on it: %v", name, err)
		}
	}
}

func TestAThousandNodesAreSmall(t *testing.T) {
	l := ledger.New()
	for at := range 24 {
		for n := range 1000 {
			for _, lever := range []model.Lever{model.LeverAffinity, model.LeverBuffering} {
				b := block(fmt.Sprintf("worker-%04d", n), 24*21+at)
				b.Lever, b.On = lever, at%20 > 0
				l.Book(b, b.To)
			}
			b := block(fmt.Sprintf("worker-%04d", n), 24*21+at)
			l.BookDraw(ledger.Draw{Node: b.Node, From: b.From, To: b.To, CPUSeconds: 60, PerBusyCore: 8, StdErr: 1, Measured: b.Measured}, b.To)
		}
	}
	if size := len(l.Save()); size > 200*1000 {
		t.Errorf("1,000 nodes with two levers are %d bytes, want 200 a node at most", size)
	} else {
		t.Logf("%d bytes", size)
	}
	keep := func(node string) bool { return node < "worker-0010" }
	whole, last := l.Save(), block("", 24*21+23)
	if l.Forget(last.To, keep); !bytes.Equal(l.Save(), whole) {
		t.Error("nodes are forgotten of which something was booked since")
	}
	l.Forget(last.To.Add(time.Second), keep)
	if size := len(l.Save()); size > 5000 {
		t.Errorf("ten nodes and the sums are %d bytes", size)
	}
	if got := l.Statement(ledger.AllTime, false, confidence); len(got.Lines) != 2 || got.Lines[0].Seconds < 1000*24*2900 {
		t.Errorf("what nodes saved that are gone is forgotten: %+v", got.Lines)
	}
}

func TestTheLedgerIsBounded(t *testing.T) {
	const most, nodes = 20_000, 20_010
	l, empty := ledger.New(), ledger.New().Save()
	for at := range 2 {
		for n := range nodes {
			b := block(fmt.Sprint("node", n), at)
			want := ledger.Cause("")
			if n >= most {
				want = ledger.TooManyNodes
			}
			if cause := l.Book(b, b.To); cause != want {
				t.Fatalf("node %d is booked as %q, want %q", n, cause, want)
			}
		}
	}
	whole := l.Statement(ledger.AllTime, false, confidence).Lines[0].Seconds
	if whole != 2*most*3000 {
		t.Errorf("booked are %g s, want all of %d nodes", whole, most)
	}
	// What is kept for a failover is bounded too, and the newest.
	if err := l.Rebase(empty); err != nil {
		t.Fatal(err)
	}
	kept := l.Statement(ledger.AllTime, false, confidence).Lines[0].Seconds / 3000
	if kept < 16_000 || kept > 33_000 || !contains(l, fmt.Sprint("node", most-1)) {
		t.Errorf("%g blocks are booked again", kept)
	}
}

func contains(l *ledger.Ledger, node string) bool {
	return l.Node(node, lever, false, confidence).Value > 0
}

func TestClassesBeyondTheMostAreOne(t *testing.T) {
	half := func(classes int) float64 {
		l := ledger.New()
		for n := range classes {
			b := block(fmt.Sprint("node", n), 0)
			b.Class.CPUModel = fmt.Sprint("model", n)
			b.Effect.Own, b.Effect.CommonFreedom, b.Joules = 0, 1e6, 300_000
			mustBook(t, l, b)
		}
		again, err := ledger.Load(l.Save())
		if err != nil {
			t.Fatal(err)
		}
		all := again.Statement(ledger.AllTime, false, confidence).Gross
		return all.High - all.Value
	}
	one := half(1)
	// 63 are apart, and the 137 others together.
	for classes, want := range map[int]float64{63: math.Sqrt(63), 200: math.Sqrt(63 + 137*137)} {
		if got := half(classes) / one; math.Abs(got/want-1) > 1e-4 {
			t.Errorf("with %d classes the interval is %g times that of one, want %g", classes, got, want)
		}
	}
}

// TestLongNamesOfClassesAreNotKept: what nodes tell of themselves does not make the ledger
// large.
func TestLongNamesOfClassesAreNotKept(t *testing.T) {
	l := ledger.New()
	b := block("a", 0)
	b.Class.CPUModel = strings.Repeat("m", 1<<20)
	mustBook(t, l, b)
	if size := len(l.Save()); size > 1<<10 {
		t.Errorf("one block takes %d bytes", size)
	}
	if got := l.Statement(ledger.AllTime, false, confidence).Gross; !(got.High > got.Value) {
		t.Errorf("%+v has no interval", got)
	}
}

func FuzzLoad(f *testing.F) {
	l := ledger.New()
	for at := range 5 {
		b := block(fmt.Sprint("n", at%2), 30*at)
		b.Modelled = at == 3
		l.Book(b, b.To)
	}
	f.Add(ledger.Unseal(l.Save()))
	f.Add(ledger.Unseal(ledger.New().Save()))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := ledger.Load(ledger.Seal(body))
		if err != nil {
			return
		}
		// What can be loaded can be used, and saved.
		b := block("n0", 400)
		got.Book(b, b.To)
		got.Statement(ledger.AllTime, false, confidence)
		got.Node("n0", lever, false, confidence)
		if _, err := ledger.Load(got.Save()); err != nil {
			t.Errorf("what was loaded and saved cannot be loaded: %v", err)
		}
	})
}
