package proofs

import (
	"math"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
)

const (
	// drawnFor is how much time of a node is booked as one.
	drawnFor = 10 * time.Minute
	// leastDrawn is the shortest that is booked, when something ends it before.
	leastDrawn = time.Minute
	// longestHold is how long a server's figure without an interval stands for the time
	// since the one before, and mostUnseen what may lie between two with intervals.
	longestHold = 5 * time.Minute
	mostUnseen  = 30 * time.Second
)

// drawn is what a node drew within some time, by its own clock.
type drawn struct {
	from, to time.Time
	// cpuSeconds that its agent used.
	cpuSeconds float64
	// acting are the levers that acted all the time, by no schedule, and foretold what of
	// them saved by the models, in the mean, if that was known all the time.
	acting   []model.Lever
	foretold map[model.Lever]power.Estimate
	ledger.Measured
}

// drawing is a node whose power is followed. The zero value is ready.
type drawing struct {
	policy string
	// first and last are the pulls that the time began with and that came last. Nil: none.
	first, last *model.NodeRates
	// source that the policy takes the power from, as long as it was the same. Empty: none
	// was known yet.
	source model.PowerSource
	mixed  bool
	acting []model.Lever
	// foretold are the sums of what was foretold of each lever at each of the looks.
	foretold map[model.Lever]*foretold
	looks    int
	// read is the time of the newest figure of a server, joules and seconds those of all
	// figures since the first pull.
	read    time.Time
	joules  units.Joules
	seconds float64
	// waiting stretches are over, and it is not known yet whether the meter was right.
	waiting []drawn
}

// foretold is what was said of a lever at so many looks.
type foretold struct {
	sum   power.Estimate
	looks int
}

func (s *Store) drawingOf(node, policy string) *drawing {
	d := s.draws[node]
	if d == nil || d.policy != policy {
		d = &drawing{policy: policy}
		s.draws[node] = d
	}
	return d
}

// believedFor is how long a stretch waits for what is known of the meter, as blocks do.
const believedFor = 10 * time.Minute

// hear takes in what is known of the node, and returns the stretches of time that are over
// and of which it is known whether the meter was right.
func (d *drawing) hear(heard *Heard, now time.Time) []drawn {
	if told, whole := d.follow(heard, now); whole {
		d.waiting = append(d.waiting, told)
	}
	var told []drawn
	for len(d.waiting) > 0 {
		is := d.waiting[0]
		if heard.Meter.Awaits(is.to) && d.last.Time.Before(is.to.Add(believedFor)) {
			break
		}
		if heard.Meter.Doubts(is.from, is.to) {
			is.Excluded = ledger.MeterSuspect
		}
		d.waiting, told = d.waiting[1:], append(told, is)
	}
	return told
}

// follow what the node draws. True: a stretch of time is over, and told of.
func (d *drawing) follow(heard *Heard, now time.Time) (drawn, bool) {
	next := heard.Rates
	d.watch(heard, now)
	if next == nil || next.Totals == nil || d.last != nil && next.Time.Equal(d.last.Time) {
		return drawn{}, false
	}
	if d.first == nil {
		d.begin(next, heard)
		return drawn{}, false
	}
	passed := next.Time.Sub(d.last.Time)
	if passed <= 0 || !follows(d.last.Totals, next.Totals, passed, heard.MostWatts) {
		// What it counted up to then stands.
		told, whole := d.tell(heard.MostWatts, leastDrawn)
		d.begin(next, heard)
		return told, whole
	}
	d.last = next
	told, whole := d.tell(heard.MostWatts, drawnFor)
	if whole {
		d.begin(next, heard)
	}
	return told, whole
}

// follows tells whether totals are of the same count, later by so much, on a node that draws
// less than most. 0: that is not known.
func follows(was, is *model.Totals, passed time.Duration, most units.Watts) bool {
	if most <= 0 {
		most = ledger.MostNodeWatts
	}
	joules, metered := is.Joules-was.Joules, is.MeteredSeconds-was.MeteredSeconds
	return is.Since.Equal(was.Since) && joules >= 0 && metered >= 0 && float64(joules) <= float64(most)*max(passed.Seconds(), metered) &&
		is.Bytes >= was.Bytes && is.AgentSeconds >= was.AgentSeconds
}

func (d *drawing) begin(at *model.NodeRates, heard *Heard) {
	*d = drawing{policy: d.policy, first: at, last: at, read: d.read, acting: heard.Acting, waiting: d.waiting}
	if heard.Power != nil {
		d.source = heard.Power.Source
	}
}

// watch looks at where the power is known from, and adds a server's figure.
func (d *drawing) watch(heard *Heard, now time.Time) {
	d.acting = slices.DeleteFunc(slices.Clone(d.acting), func(l model.Lever) bool { return !slices.Contains(heard.Acting, l) })
	d.foresee(heard.Foretold)
	p := heard.Power
	if p == nil {
		return
	}
	if d.source == "" {
		d.source = p.Source
	}
	d.mixed = d.mixed || d.source != p.Source
	if p.Source != model.SourcePrometheus || !p.Time.After(d.read) || p.Time.After(now.Add(mostUnseen)) {
		return
	}
	since, interval := p.Time.Sub(d.read), time.Duration(p.IntervalSeconds*float64(time.Second))
	first := d.read.IsZero()
	d.read = p.Time
	switch {
	case first && interval <= 0, interval <= 0 && since > longestHold:
		return // Of how long the figure tells is not known.
	case interval <= 0, since < interval+mostUnseen && !first:
		interval = since
	}
	d.joules += units.Joules(float64(p.Watts) * interval.Seconds())
	d.seconds += interval.Seconds()
}

// foresee notes what levers save by the models now.
func (d *drawing) foresee(now map[model.Lever]power.Estimate) {
	d.looks++
	for lever, saves := range now {
		if d.foretold == nil {
			d.foretold = map[model.Lever]*foretold{}
		}
		of := d.foretold[lever]
		if of == nil {
			of = &foretold{}
			d.foretold[lever] = of
		}
		of.sum.Watts += saves.Watts
		of.sum.StdErr += saves.StdErr
		of.looks++
	}
}

// foreseen is what levers saved by the models, in the mean of all looks: of those that were
// told of at each.
func (d *drawing) foreseen() map[model.Lever]power.Estimate {
	out := map[model.Lever]power.Estimate{}
	for lever, of := range d.foretold {
		if n := units.Watts(of.looks); of.looks == d.looks {
			out[lever] = power.Estimate{Watts: of.sum.Watts / n, StdErr: of.sum.StdErr / n}
		}
	}
	return out
}

// tell what was drawn from the first pull to the last, if that is long enough.
func (d *drawing) tell(mostWatts units.Watts, least time.Duration) (drawn, bool) {
	length := d.last.Time.Sub(d.first.Time)
	if length < least {
		return drawn{}, false
	}
	from, to := d.first.Totals, d.last.Totals
	told := drawn{
		from: d.first.Time, to: d.last.Time, cpuSeconds: to.AgentSeconds - from.AgentSeconds, acting: d.acting, foretold: d.foreseen(),
		Measured: ledger.Measured{
			Seconds: d.seconds, Joules: d.joules, Bytes: to.Bytes - from.Bytes,
			Modelled: d.source == model.SourceModel, MostWatts: mostWatts,
		},
	}
	if d.source != model.SourcePrometheus {
		told.Seconds, told.Joules = to.MeteredSeconds-from.MeteredSeconds, to.Joules-from.Joules
	}
	// A meter may have missed some, or tell of the time before too.
	if most := length.Seconds(); told.Seconds > most {
		told.Joules *= units.Joules(most / told.Seconds)
		told.Seconds = most
	}
	told.Bytes *= math.Min(1, told.Seconds/length.Seconds())
	switch {
	case d.mixed:
		told.Excluded = ledger.MeterChanged
	case d.source == "" || told.Seconds <= 0:
		told.Excluded = ledger.MeterFailed
	}
	return told, true
}
