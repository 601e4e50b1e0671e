package blocks

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy/stream"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
)

const (
	nodeName = "n1"
	hours    = 2
	// ahead is the node's clock of the manager's.
	ahead = 3 * time.Minute
)

// world is a node with an honest agent and a meter, whose truth is known each second.
type world struct {
	schedule model.Schedule
	// joules and bytes since the start, by the second.
	joules, bytes []float64
	// server is the interval of the Prometheus server's figures in seconds, each as late.
	// 0: the agent has counters.
	server int
}

func start() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// at is so many seconds after the start by the manager's clock.
func at(seconds float64) time.Time {
	return start().Add(time.Duration(seconds * float64(time.Second)))
}

// theirs is the same by the node's.
func theirs(seconds float64) time.Time { return at(seconds).Add(ahead) }

// newWorld has a schedule of blocks of 5 minutes that begins after 10. The node draws 100 W,
// and with the lever on a tenth less, within some seconds of each switch; its work varies.
func newWorld(seed uint64) *world {
	random := rand.New(rand.NewPCG(seed, 7))
	w := &world{schedule: model.Schedule{
		Lever: v1alpha1.LeverAffinity, Seed: int64(seed), Start: theirs(600), Block: 5 * time.Minute, WashOut: time.Minute,
	}}
	for range 8 {
		first := random.IntN(2) == 0
		w.schedule.On = append(w.schedule.On, first, !first)
	}
	w.joules, w.bytes = []float64{0}, []float64{0}
	watts := 100.0
	for second := range hours * 3600 {
		target := 100.0
		if w.schedule.At(theirs(float64(second))).On {
			target = 90
		}
		watts += (target - watts) / 5
		last := len(w.joules) - 1
		w.joules = append(w.joules, w.joules[last]+watts+random.Float64())
		w.bytes = append(w.bytes, w.bytes[last]+1000*(2+math.Sin(float64(second)/40)))
	}
	return w
}

// rates of the round that ended at a second.
func (w *world) rates(second int) *model.NodeRates {
	now := theirs(float64(second))
	r := &model.NodeRates{
		Node: nodeName, Time: now,
		Totals: &model.Totals{
			Since: theirs(-1000), Seconds: 1000 + float64(second), MeteredSeconds: 990 + float64(second),
			Joules: units.Joules(w.joules[second]), Bytes: w.bytes[second],
		},
		Switches: []model.Switch{{Lever: v1alpha1.LeverSlice}, w.did(now)},
	}
	if w.server == 0 {
		r.Power = &model.Power{Source: v1alpha1.PowerRAPL, Scope: v1alpha1.PowerScopePackage, Time: now, IntervalSeconds: 1}
	}
	return r
}

// did is what the agent says of the lever.
func (w *world) did(now time.Time) model.Switch {
	s := &w.schedule
	moment := s.At(now)
	since := theirs(-900)
	for block := moment.Block; block >= 0 && s.On[block] == moment.On; block-- {
		since = s.Start.Add(time.Duration(block) * s.Block)
	}
	return model.Switch{Lever: s.Lever, Seed: s.Seed, Start: s.Start, Block: moment.Block, On: moment.On, Since: since}
}

// sight is what the manager knows at a second: the round of the second before.
func (w *world) sight(second int) Sight {
	s := Sight{Sample: stream.Sample{Rates: w.rates(second - 1), Received: at(float64(second))}, Schedules: []model.Schedule{w.schedule}}
	s.Power = s.Rates.Power
	if w.server > 0 {
		// The newest of an interval that ended one ago.
		end := (second - w.server) / w.server * w.server
		if begin := end - w.server; begin >= 0 {
			watts := (w.joules[end] - w.joules[begin]) / float64(w.server)
			s.Power = &model.Power{
				Source: v1alpha1.PowerPrometheus, Scope: v1alpha1.PowerScopePlatform, Watts: units.Watts(watts),
				Time: at(float64(end)), IntervalSeconds: float64(w.server),
			}
		}
	}
	return s
}

// run looks each 15 s at what change makes of each sight. False: the manager does not look.
func (w *world) run(change func(second int, s *Sight) bool) []Block {
	return w.looks(func(yield func(int) bool) {
		for second := 15; second < hours*3600 && yield(second); second += 15 {
		}
	}, change)
}

func (w *world) looks(seconds func(func(int) bool), change func(second int, s *Sight) bool) []Block {
	store := NewStore()
	var told []Block
	for second := range seconds {
		s := w.sight(second)
		if change == nil || change(second, &s) {
			told = append(told, store.Look(nodeName, s, at(float64(second)))...)
		}
	}
	return told
}

// truth of what is judged of a block.
func (w *world) truth(number int) verify.Outcome {
	end := 600 + 300*(number+1)
	from := end - 240
	return verify.Outcome{
		Unit: nodeName, Block: number, On: number >= 0 && w.schedule.On[number], Seconds: 240,
		Joules: units.Joules(w.joules[end] - w.joules[from]), Work: w.bytes[end] - w.bytes[from],
	}
}

// isNear tells whether an outcome is what it should be, but for what may be missing of it.
func isNear(o, truth verify.Outcome) bool {
	share := o.Seconds / truth.Seconds
	return o.Unit == truth.Unit && o.Block == truth.Block && o.On == truth.On && share >= leastCovered && share <= 1+1e-9 &&
		math.Abs(float64(o.Joules/truth.Joules)/share-1) < 0.003 && math.Abs(o.Work/truth.Work/share-1) < 0.15
}

// checkReported wants all blocks, each once, and those excluded that are named with a cause.
// The others are near the truth.
func (w *world) checkReported(t *testing.T, told []Block, excluded map[int]string) {
	t.Helper()
	if len(told) != len(w.schedule.On) {
		t.Errorf("%d blocks are told of, want %d", len(told), len(w.schedule.On))
	}
	for i, b := range told {
		if b.Block != told[0].Block+i {
			t.Errorf("block %d comes after %d", b.Block, told[i-1].Block)
		}
		if b.Excluded != excluded[b.Block] {
			t.Errorf("block %d is excluded for %q, want %q", b.Block, b.Excluded, excluded[b.Block])
		}
		if b.Excluded == "" && !isNear(b.Outcome, w.truth(b.Block)) {
			t.Errorf("block %d is %+v, want about %+v", b.Block, b.Outcome, w.truth(b.Block))
		}
		from := w.schedule.Start.Add(time.Duration(b.Block) * w.schedule.Block)
		if b.Lever != w.schedule.Lever || b.Seed != w.schedule.Seed || !b.Start.Equal(w.schedule.Start) ||
			!b.From.Equal(from) || !b.To.Equal(from.Add(w.schedule.Block)) {
			t.Errorf("block %d is %+v of schedule %+v", b.Block, b, w.schedule)
		}
	}
}

// within tells whether a second is that of a block, so many after its start.
func within(second, number, from, to int) bool {
	begin := 600 + 300*number
	return second >= begin+from && second < begin+to
}
