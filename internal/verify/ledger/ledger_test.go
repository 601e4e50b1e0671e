package ledger_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
)

const (
	lever      = v1alpha1.LeverBuffering
	confidence = 0.95
	hour       = time.Hour
)

func noon() time.Time { return time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC) }

// block of an hour with the lever on: the node draws 100 W and would draw 110 W without.
func block(node string, at int) ledger.Block {
	from := noon().Add(time.Duration(at) * hour)
	return ledger.Block{
		Node: node, Lever: lever, From: from, To: from.Add(hour), On: true,
		Class:  verify.Class{CPUModel: "Xeon", Kernel: "6.12", Workload: "Interactive"},
		Effect: verify.Shrunk{Log: -math.Log(1.1), Own: 0.01, Freedom: 20, Common: 0.005, CommonFreedom: 9},
		// No two blocks draw quite the same.
		Measured: ledger.Measured{Seconds: 3000, Joules: 300_000 * (1 + 1e-5*jitter(at)), Bytes: 1e9},
	}
}

func jitter(at int) joules { return joules(at%97) - 48 }

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a), math.Abs(b)) }

func wantRange(t *testing.T, what string, got ledger.Range, value, half float64) {
	t.Helper()
	close := func(a, b float64) bool { return math.Abs(a-b) <= 1e-5*max(1, math.Abs(b)) }
	if !close(got.Value, value) || !close(got.High-got.Value, half) || !close(got.Value-got.Low, half) {
		t.Errorf("%s is %g in [%g, %g], want %g and %g to each side", what, got.Value, got.Low, got.High, value, half)
	}
}

// mustBook books or fails.
func mustBook(t *testing.T, l *ledger.Ledger, blocks ...ledger.Block) {
	t.Helper()
	for _, b := range blocks {
		if cause := l.Book(b, b.To); cause != "" {
			t.Fatalf("the block of %s at %s is not booked: %s", b.Node, b.From, cause)
		}
	}
}

func TestABlockSaves(t *testing.T) {
	l := ledger.New()
	on, off := block("a", 48), block("a", 49)
	on.Joules, off.Joules, off.On = 300_000, 330_001, false
	mustBook(t, l, on, off)
	s := l.Statement(ledger.MonthOf(noon()), false, confidence)
	// 330 kJ is what the effect's error is multiplied by.
	var errors verify.ErrorSum
	errors.Add(3300, 20)
	errors.Add(1650, 9)
	wantRange(t, "saved", s.Saved, 30_000, errors.Half(confidence))
	wantRange(t, "the node", l.Node("a", lever, false, confidence), 30_000, errors.Half(confidence))
	if len(s.Lines) != 1 || s.Lines[0].Lever != lever || s.Lines[0].Seconds != 6000 || s.Lines[0].Joules != 630_001 || s.Lines[0].Bytes != 2e9 {
		t.Errorf("lines %+v", s.Lines)
	}
	with, without, ok := s.Lines[0].PerGB()
	if !ok || !near(with, 315_000.5) || !near(without.Value, 330_000.5) || !(without.Low < without.Value && without.Value < without.High) {
		t.Errorf("%g J/GB with and %+v without (%v)", with, without, ok)
	}
	if modelled := l.Statement(ledger.AllTime, true, confidence); len(modelled.Lines) != 0 || modelled.Saved != (ledger.Range{}) {
		t.Errorf("of a measured block, modelled is %+v", modelled)
	}
}

func TestErrorsOfOneEffectDoNotAverageOut(t *testing.T) {
	half := func(blocks ...ledger.Block) float64 {
		l := ledger.New()
		mustBook(t, l, blocks...)
		all := l.Statement(ledger.AllTime, false, confidence).Saved
		return all.High - all.Value
	}
	of := func(nodes, blocks int, own, common float64) float64 {
		var all []ledger.Block
		for n := range nodes {
			for at := range blocks {
				b := block(fmt.Sprint("node", n), at)
				b.Joules = 300_000 * (1 + 1e-9*joules(at))
				b.Effect.Own, b.Effect.Common, b.Effect.Freedom, b.Effect.CommonFreedom = own, common, 1e9, 1e9
				// Alike to seven digits is for meters to be.
				b.Modelled = false
				b.Seconds -= float64(at)
				all = append(all, b)
			}
		}
		return half(all...)
	}
	one := of(1, 1, 0.01, 0)
	for name, test := range map[string]struct{ got, want float64 }{
		"nine blocks of a node":          {of(1, 9, 0.01, 0), 9 * one},
		"nine nodes, each on its own":    {of(9, 1, 0.01, 0), 3 * one},
		"nine nodes with a common error": {of(9, 1, 0, 0.01), 9 * one},
		"nine nodes of nine blocks":      {of(9, 9, 0.01, 0), 27 * one},
	} {
		if math.Abs(test.got/test.want-1) > 1e-4 {
			t.Errorf("%s: half an interval is %g, want %g", name, test.got, test.want)
		}
	}
}

type joules = units.Joules

func TestAGroupMayDrawMoreThanANode(t *testing.T) {
	l, b := ledger.New(), block("shop/web", 0)
	b.Joules, b.MostWatts = 25_000*3000, 2*ledger.MostNodeWatts
	if cause := l.Book(b, b.To); cause != "" {
		t.Errorf("25 kW of two nodes are not booked: %s", cause)
	}
}

func TestBadBlocksBookNothing(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(*ledger.Block)
		want  ledger.Cause
	}{
		"no node":                {func(b *ledger.Block) { b.Node = "" }, ledger.Malformed},
		"a long name":            {func(b *ledger.Block) { b.Node = strings.Repeat("n", 400) }, ledger.Malformed},
		"no lever":               {func(b *ledger.Block) { b.Lever = "" }, ledger.Malformed},
		"no length":              {func(b *ledger.Block) { b.To = b.From }, ledger.Malformed},
		"backwards":              {func(b *ledger.Block) { b.From, b.To = b.To, b.From }, ledger.Malformed},
		"of a week":              {func(b *ledger.Block) { b.From = b.To.Add(-168 * hour) }, ledger.Malformed},
		"no seconds":             {func(b *ledger.Block) { b.Seconds = 0 }, ledger.Malformed},
		"longer than itself":     {func(b *ledger.Block) { b.Seconds = 4000 }, ledger.Malformed},
		"no number":              {func(b *ledger.Block) { b.Joules = joules(math.NaN()) }, ledger.Malformed},
		"endless":                {func(b *ledger.Block) { b.Bytes = math.Inf(1) }, ledger.Malformed},
		"a cause of its own":     {func(b *ledger.Block) { b.Excluded = "SavedTooLittle" }, ledger.Malformed},
		"a refusal as cause":     {func(b *ledger.Block) { b.Excluded = ledger.Implausible }, ledger.Malformed},
		"tomorrow":               {func(b *ledger.Block) { b.From, b.To = b.From.Add(24*hour), b.To.Add(24*hour) }, ledger.InFuture},
		"in January":             {func(b *ledger.Block) { b.From, b.To = b.From.AddDate(0, -2, 0), b.To.AddDate(0, -2, 0) }, ledger.TooOld},
		"in 1969":                {func(b *ledger.Block) { b.From, b.To = time.Unix(-7200, 0), time.Unix(-3600, 0) }, ledger.TooOld},
		"a meter below nothing":  {func(b *ledger.Block) { b.Joules = -5 }, ledger.Implausible},
		"a meter that stands":    {func(b *ledger.Block) { b.Joules = 0 }, ledger.Implausible},
		"a meter in milliwatts":  {func(b *ledger.Block) { b.Joules *= 1000 }, ledger.Implausible},
		"more than the node":     {func(b *ledger.Block) { b.MostWatts = 90 }, ledger.Implausible},
		"more than any node":     {func(b *ledger.Block) { b.Joules = 25_000 * 3000 }, ledger.Implausible},
		"no evidence":            {func(b *ledger.Block) { b.Effect = verify.Shrunk{} }, ledger.NoEvidence},
		"evidence of magic":      {func(b *ledger.Block) { b.Effect.Log = -4 }, ledger.NoEvidence},
		"an effect of no number": {func(b *ledger.Block) { b.Effect.Log = math.NaN() }, ledger.NoEvidence},
		"a meter that failed":    {func(b *ledger.Block) { b.Excluded = ledger.MeterFailed }, ledger.MeterFailed},
		"a clock that jumped":    {func(b *ledger.Block) { b.Excluded = ledger.ClockJumped }, ledger.ClockJumped},
		"an agent's restart":     {func(b *ledger.Block) { b.Excluded = ledger.AgentRestarted }, ledger.AgentRestarted},
		"another plan":           {func(b *ledger.Block) { b.Excluded = ledger.Replaced }, ledger.Replaced},
		"one that contradicts":   {func(b *ledger.Block) { b.Excluded = ledger.Contradictory }, ledger.Contradictory},
		"a quarter of an hour ahead": {func(b *ledger.Block) {
			b.From, b.To = b.From.Add(15*time.Minute), b.To.Add(15*time.Minute)
		}, ledger.InFuture},
		"more traffic than there is": {func(b *ledger.Block) { b.Bytes = 1e300 }, ledger.Implausible},
		"a bound above all bounds":   {func(b *ledger.Block) { b.Joules, b.MostWatts = 1e300, units.Watts(math.Inf(1)) }, ledger.Implausible},
	} {
		l := ledger.New()
		b := block("a", 0)
		now := b.To
		test.spoil(&b)
		if got := l.Book(b, now); got != test.want {
			t.Errorf("%s: is booked as %q, want %q", name, got, test.want)
		}
		if s := l.Statement(ledger.AllTime, false, confidence); len(s.Lines) != 0 {
			t.Errorf("%s: lines %+v", name, s.Lines)
		}
		if diff := cmp.Diff(map[ledger.Cause]int64{test.want: 1}, l.Causes()); diff != "" {
			t.Errorf("%s: causes (-want +got):\n%s", name, diff)
		}
	}
}

func TestTwiceAndFrozen(t *testing.T) {
	l := ledger.New()
	first := block("a", 0)
	mustBook(t, l, first)
	part := block("a", 0)
	part.From, part.To = part.From.Add(30*time.Minute), part.To.Add(30*time.Minute)
	for name, b := range map[string]ledger.Block{"the same": first, "a part of it": part} {
		if cause := l.Book(b, b.To); cause != ledger.AlreadyBooked {
			t.Errorf("%s: %q", name, cause)
		}
	}
	frozen := block("a", 1)
	frozen.Joules = first.Joules
	if cause := l.Book(frozen, frozen.To); cause != ledger.Frozen {
		t.Errorf("the same figure again: %q", cause)
	}
	frozen.From, frozen.To, frozen.Modelled = frozen.To, frozen.To.Add(hour), true
	if cause := l.Book(frozen, frozen.To); cause != "" {
		t.Errorf("a model that says the same again: %q", cause)
	}
	excluded := block("a", 3)
	excluded.Excluded = ledger.NotWatched
	l.Book(excluded, excluded.To)
	if again := block("a", 3); l.Book(again, again.To) != ledger.AlreadyBooked {
		t.Error("a block that was excluded is booked when it is told again")
	}
	unknown, known := block("a", 4), block("a", 4)
	unknown.Effect = verify.Shrunk{}
	l.Book(unknown, unknown.To)
	if cause := l.Book(known, known.To); cause != "" {
		t.Errorf("a block whose effect became known: %q", cause)
	}
}

func TestAClockThatJumpsTakesNothingFromTheTimeBefore(t *testing.T) {
	l := ledger.New()
	mustBook(t, l, block("a", 0), block("a", 24*200), block("a", 24*200+1))
	mustBook(t, l, block("a", 1), block("a", 2))
	if got := l.Statement(ledger.MonthOf(noon()), false, confidence); len(got.Lines) != 1 || got.Lines[0].Seconds != 9000 {
		t.Errorf("the month has %+v, want its three blocks", got.Lines)
	}
}

// TestNodesClocksMayBeAhead: blocks are by the clock of the node, which may be minutes ahead
// of that of the manager.
func TestNodesClocksMayBeAhead(t *testing.T) {
	l := ledger.New()
	b := block("a", 0)
	if cause := l.Book(b, b.To.Add(-5*time.Minute)); cause != "" {
		t.Errorf("a block of a node whose clock is 5 minutes ahead is not booked: %s", cause)
	}
}

func TestMonths(t *testing.T) {
	l := ledger.New()
	for month := range 20 {
		for day := range 2 {
			b := block("a", month*30*24+day*24)
			mustBook(t, l, b)
		}
	}
	months := l.Months()
	if len(months) != 13 || months[0].String() != "2026-10" || months[12].String() != "2027-10" {
		t.Errorf("months are %v", months)
	}
	all := l.Statement(ledger.AllTime, false, confidence)
	if all.Lines[0].Seconds != 40*3000 {
		t.Errorf("of all time there are %g s, want those of 40 blocks", all.Lines[0].Seconds)
	}
	// A block in December ends in January.
	end := time.Date(2026, 12, 31, 23, 30, 0, 0, time.UTC)
	if got := ledger.MonthOf(end.In(time.FixedZone("east", 3600))); got.String() != "2026-12" || got+1 != ledger.MonthOf(end.Add(hour)) {
		t.Errorf("the month of %s is %s", end, got)
	}
}

func TestMoneyAndCarbon(t *testing.T) {
	saved := ledger.Range{Value: 3.6e9, Low: 1.8e9, High: 7.2e9}
	tariff := ledger.Tariff{PerKWh: 0.25, GramsPerKWh: 400}
	for name, test := range map[string]struct{ got, want ledger.Range }{
		"kWh":   {saved.KWh(), ledger.Range{Value: 1000, Low: 500, High: 2000}},
		"cost":  {tariff.Cost(saved), ledger.Range{Value: 250, Low: 125, High: 500}},
		"grams": {tariff.Grams(saved), ledger.Range{Value: 400_000, Low: 200_000, High: 800_000}},
	} {
		if !near(test.got.Value, test.want.Value) || !near(test.got.Low, test.want.Low) || !near(test.got.High, test.want.High) {
			t.Errorf("%s: %+v, want %+v", name, test.got, test.want)
		}
	}
}

// TestWhatModelsTellErrsTogether: two levers' effects were measured by draws of their own, and
// are foretold by one model.
func TestWhatModelsTellErrsTogether(t *testing.T) {
	l := ledger.New()
	for _, modelled := range []bool{false, true} {
		one, other := block("a", 1), block("a", 1)
		other.Lever = v1alpha1.LeverAffinity
		if one.Modelled, other.Modelled = modelled, modelled; modelled {
			one.Node, other.Node = "b", "b"
		}
		mustBook(t, l, one, other)
	}
	half := func(r ledger.Range) float64 { return r.High - r.Value }
	for modelled, want := range map[bool]float64{false: math.Sqrt2, true: 2} {
		s := l.Statement(ledger.AllTime, modelled, confidence)
		if got := half(s.Saved) / half(s.Lines[0].Saved); math.Abs(got/want-1) > 0.05 {
			t.Errorf("modelled %t: two levers' interval is %.2f times that of one, want %.2f", modelled, got, want)
		}
	}
}

// TestDraws books what a node drew once, and nothing where its meter failed.
func TestDraws(t *testing.T) {
	l := ledger.New()
	mustBook(t, l, block("a", 48))
	draw := ledger.Draw{
		Node: "a", From: noon().Add(48 * hour), To: noon().Add(49 * hour), Measured: ledger.Measured{Seconds: 3600, Joules: 360_000, Bytes: 2e9},
	}
	failed := draw
	failed.From, failed.To, failed.Excluded = draw.To, draw.To.Add(hour), ledger.MeterFailed
	for _, c := range []struct {
		draw ledger.Draw
		want ledger.Cause
	}{{draw, ""}, {draw, ledger.AlreadyBooked}, {failed, ledger.MeterFailed}} {
		if cause := l.BookDraw(c.draw, c.draw.To); cause != c.want {
			t.Errorf("booked as %q, want %q", cause, c.want)
		}
	}
	s := l.Statement(ledger.AllTime, false, confidence)
	if s.Drawn != 360_000 || s.Bytes != 2e9 {
		t.Errorf("drawn %g, %g bytes", s.Drawn, s.Bytes)
	}
	with, without, ok := s.PerGB()
	if !ok || !near(with, 180_000) || !near(without.Value, (360_000+s.Saved.Value)/2) {
		t.Errorf("%g J/GB with and %+v without (%v)", with, without, ok)
	}
}
