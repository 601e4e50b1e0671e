package credible

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// pull is the time between two pulls, ahead what the node's clock is of the manager's.
	pull, ahead = 15 * time.Second, 3 * time.Minute
	// idle and perCore are what a node draws in truth.
	idle, perCore = 90.0, 6.0
)

func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// world is a simulated node whose load wanders, beside steps of it, with a lever on a
// schedule, and a meter that may lie. Times are by the manager's clock.
type world struct {
	random *rand.Rand
	// effect of the lever, as a logarithm, in blocks that follow one another from the second
	// hour on. Long ones are held back once in 20.
	effect   float64
	block    time.Duration
	heldBack bool
	// unseen is what the power wanders each pull beside the load, as a logarithm.
	unseen float64
	// lie is what the meter says over the truth from one time to another.
	lie      float64
	from, to time.Time
	// dearer is what work costs more from then on than the load tells, as a factor.
	dearer float64
	// server is the time between two figures of a Prometheus server. 0: the agent has
	// counters.
	server time.Duration
	// noise of the server's figures, as a standard deviation.
	noise float64
	// both tells whether the node has another meter beside, of another part of the node or
	// not.
	both, apart bool

	now               time.Time
	schedule          model.Schedule
	work, steps, mood float64
	totals            model.Totals
	// said joules of the policy's meter, and when a server counted last.
	said, counted float64
	scraped       time.Time
	figure        *model.Power
}

func newWorld(seed uint64) *world {
	return &world{
		random: rand.New(rand.NewPCG(seed, 11)), block: 7 * time.Minute, unseen: 0.0005, lie: 1, dearer: 1,
		now: noon(), totals: model.Totals{Since: noon()}, steps: 1,
	}
}

// draw a schedule that lasts for as many hours.
func (w *world) draw(hours int) {
	w.schedule = model.Schedule{Lever: model.LeverAffinity, Seed: 1, Start: noon().Add(ahead + time.Hour), Block: w.block, WashOut: w.block / 6}
	blocks := int(time.Duration(hours) * time.Hour / w.block)
	for len(w.schedule.On) < blocks {
		first := w.random.IntN(2) == 0
		if !w.heldBack {
			w.schedule.On = append(w.schedule.On, first, !first)
			continue
		}
		const stratum = 20
		off := w.random.IntN(stratum)
		for i := range stratum {
			w.schedule.On = append(w.schedule.On, i != off)
		}
	}
}

// pass lets the time between two pulls pass.
func (w *world) pass() Sight {
	const step = 5 * time.Second
	if w.random.Float64() < pull.Hours() { // each hour, VMs come or go
		w.steps = 0.7 + 0.6*w.random.Float64()
	}
	for at := w.now; at.Before(w.now.Add(pull)); at = at.Add(step) {
		w.live(at, step.Seconds())
	}
	w.now = w.now.Add(pull)
	w.totals.Seconds += pull.Seconds()
	return w.sight()
}

func (w *world) live(at time.Time, seconds float64) {
	w.work = 0.97*w.work + 0.03*w.random.NormFloat64()
	w.mood = 0.999*w.mood + w.unseen*w.random.NormFloat64()
	busy := 10 * w.steps * math.Exp(w.work)
	watts := (idle + perCore*busy) * math.Exp(w.mood+0.005*w.random.NormFloat64())
	if w.schedule.At(at.Add(ahead)).On {
		watts *= math.Exp(w.effect)
	}
	if !w.from.IsZero() && !at.Before(w.from) {
		watts *= w.dearer
	}
	said := watts
	if !at.Before(w.from) && at.Before(w.to) {
		said *= w.lie
	}
	w.said += said * seconds
	w.totals.BusyCoreSeconds += busy * seconds
	w.totals.Bytes += busy * 1e6 * seconds
	w.totals.MeteredSeconds += seconds
	switch {
	case !w.both:
		w.totals.Joules = units.Joules(w.said)
	case w.apart:
		w.totals.Joules += units.Joules((watts - idle/2) * seconds)
	default:
		w.totals.Joules += units.Joules(watts * seconds)
	}
}

func (w *world) sight() Sight {
	theirs, totals := w.now.Add(ahead), w.totals
	moment := w.schedule.At(theirs)
	r := &model.NodeRates{Node: "n", Time: theirs, IntervalSeconds: pull.Seconds(), Totals: &totals}
	since := w.schedule.Start
	for b := moment.Block; b > 0; b-- {
		if w.schedule.On[b-1] != moment.On {
			since = w.schedule.Start.Add(time.Duration(b) * w.schedule.Block)
			break
		}
	}
	r.Switches = []model.Switch{{Lever: w.schedule.Lever, Seed: 1, Start: w.schedule.Start, Block: moment.Block, On: moment.On, Since: since}}
	if w.server == 0 || w.both {
		r.Power = &model.Power{Source: model.SourceRAPL, Scope: model.ScopePackage, Time: theirs, IntervalSeconds: 1}
	}
	s := Sight{Rates: r, Received: w.now, Power: r.Power, Schedules: []model.Schedule{w.schedule}, BusyCore: power.Estimate{Watts: 5, StdErr: 1.8}}
	if w.server > 0 {
		s.Power = w.scrape()
	}
	return s
}

// scrape gives the newest figure of the server.
func (w *world) scrape() *model.Power {
	if passed := w.now.Sub(w.scraped); passed >= w.server {
		if !w.scraped.IsZero() {
			w.figure = &model.Power{
				Source: model.SourcePrometheus, Scope: model.ScopePackage, Time: w.now, IntervalSeconds: passed.Seconds(),
				Watts: units.Watts((w.said - w.counted) / passed.Seconds()),
			}
			if w.noise > 0 {
				w.figure.Watts *= units.Watts(1 + w.noise*w.random.NormFloat64())
			}
			if w.apart {
				w.figure.Scope = model.ScopePlatform
			}
		}
		w.scraped, w.counted = w.now, w.said
	}
	return w.figure
}

// outcome of a run.
type outcome struct {
	spans []Span
	// delay is how old the lie was when it was first seen. Below 0: it was not.
	delay time.Duration
}

// run lets hours pass, each pull looked at by a watch.
func (w *world) run(hours int) outcome {
	w.draw(hours)
	var watch Watch
	o := outcome{delay: -1}
	for end := noon().Add(time.Duration(hours) * time.Hour); w.now.Before(end); {
		verdict := watch.Look(w.pass(), w.now)
		if o.delay < 0 && !verdict.Since().IsZero() && w.now.After(w.from) && w.now.Before(w.to) {
			o.delay = w.now.Sub(w.from)
		}
		for _, span := range verdict.Suspect {
			at := slices.IndexFunc(o.spans, func(s Span) bool { return s.From.Equal(span.From) })
			if at < 0 {
				o.spans = append(o.spans, span)
				continue
			}
			o.spans[at] = span
		}
	}
	return o
}

// lies for an hour, at some time in the fourth hour.
func (w *world) lies(factor float64) {
	w.lie, w.from = factor, noon().Add(3*time.Hour+time.Duration(w.random.Int64N(int64(time.Hour))))
	w.to = w.from.Add(time.Hour)
}

// covers tells whether all of the lie is in spans, and how much besides.
func (w *world) covers(spans []Span) (all bool, besides time.Duration) {
	var within time.Duration
	from, to := w.from.Add(ahead), w.to.Add(ahead)
	for _, s := range spans {
		begin, end := s.From, s.To
		if end.IsZero() {
			end = w.now.Add(ahead)
		}
		besides += end.Sub(begin)
		if begin.Before(from) {
			begin = from
		}
		if end.After(to) {
			end = to
		}
		within += max(0, end.Sub(begin))
	}
	return within == w.to.Sub(w.from), besides - within
}
