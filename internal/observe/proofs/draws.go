package proofs

import (
	"cmp"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy/stream"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
)

const (
	// drawnFor is how much time of a node is booked as one.
	drawnFor = 10 * time.Minute
	// leastDrawn is the shortest that is booked, when something ends it before.
	leastDrawn = time.Minute
)

// drawn is what a node drew within some time, by its own clock.
type drawn struct {
	from, to time.Time
	// acting are the levers that acted all the time, by no schedule, and foretold what of
	// them saved by the models, in the mean, if that was known all the time.
	acting   []v1alpha1.Lever
	foretold map[v1alpha1.Lever]power.Estimate
	ledger.Measured
}

// drawing is a node whose power is followed. The zero value is ready.
type drawing struct {
	policy string
	stream stream.Stream
	// from and to are when the first and the last round ended. Zero: there is none.
	from, to time.Time
	// source that the policy takes the power from, as long as it was the same. Empty: none
	// was known yet.
	source v1alpha1.PowerSource
	mixed  bool
	acting []v1alpha1.Lever
	// foretold are the sums of what was foretold of each lever at each of the looks.
	foretold map[v1alpha1.Lever]*foretold
	looks    int
	// measured sums up all intervals since the first round.
	measured ledger.Measured
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

// observe records what is known of the node. True: a stretch of time is over, and returned.
func (d *drawing) observe(heard *Heard, now time.Time) (drawn, bool) {
	heard.Now = now
	step := d.stream.Observe(heard.Sample)
	d.acting = slices.DeleteFunc(slices.Clone(d.acting), func(l v1alpha1.Lever) bool { return !slices.Contains(heard.Acting, l) })
	d.foresee(heard.Predicted)
	if heard.Power != nil {
		d.source = cmp.Or(d.source, heard.Power.Source)
		d.mixed = d.mixed || d.source != heard.Power.Source
	}
	for i := range step.Intervals {
		if p := &step.Intervals[i]; p.HasTotals {
			d.measured.Seconds += p.Seconds
			d.measured.Joules += p.Joules
			d.measured.Bytes += p.Work()
		}
	}
	if !step.IsNew {
		return drawn{}, false
	}
	least := drawnFor
	if step.Break == "" {
		d.to = step.At
	} else {
		least = leastDrawn // What was counted up to then stands.
	}
	told, whole := d.tell(heard.MostWatts, least)
	if whole || step.Break != "" || d.from.IsZero() {
		d.begin(step.At, heard)
	}
	return told, whole
}

func (d *drawing) begin(at time.Time, heard *Heard) {
	*d = drawing{policy: d.policy, stream: d.stream, from: at, to: at, acting: heard.Acting}
	if heard.Power != nil {
		d.source = heard.Power.Source
	}
}

// foresee notes what levers save by the models now.
func (d *drawing) foresee(now map[v1alpha1.Lever]power.Estimate) {
	d.looks++
	for lever, saves := range now {
		if d.foretold == nil {
			d.foretold = map[v1alpha1.Lever]*foretold{}
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
func (d *drawing) foreseen() map[v1alpha1.Lever]power.Estimate {
	out := map[v1alpha1.Lever]power.Estimate{}
	for lever, of := range d.foretold {
		if n := units.Watts(of.looks); of.looks == d.looks {
			out[lever] = power.Estimate{Watts: of.sum.Watts / n, StdErr: of.sum.StdErr / n}
		}
	}
	return out
}

// tell what was drawn from the first round to the last, if that is long enough.
func (d *drawing) tell(mostWatts units.Watts, least time.Duration) (drawn, bool) {
	length := d.to.Sub(d.from)
	if d.from.IsZero() || length < least {
		return drawn{}, false
	}
	told := drawn{from: d.from, to: d.to, acting: d.acting, foretold: d.foreseen(), Measured: d.measured}
	told.Modelled, told.MostWatts = d.source == v1alpha1.PowerModel, mostWatts
	// Figures of a server that came late may be of the time before, too.
	if most := length.Seconds(); told.Seconds > most {
		told.Joules *= units.Joules(most / told.Seconds)
		told.Bytes *= most / told.Seconds
		told.Seconds = most
	}
	switch {
	case d.mixed:
		told.Excluded = ledger.MeterChanged
	case d.source == "" || told.Seconds <= 0:
		told.Excluded = ledger.MeterFailed
	}
	return told, true
}
