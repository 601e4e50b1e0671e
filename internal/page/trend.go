package page

import (
	"context"
	"math"
	"net/url"
	"sync"
	"time"

	"github.com/joulevirt/joulevirt/internal/cli/facts"
)

const (
	// step between two points, and span that is remembered.
	step = time.Minute
	span = 24 * time.Hour
	// mostPolicies whose figures are remembered, by name.
	mostPolicies = 200
)

// point is what the nodes of a policy drew at a time, in watts. NaN: not known.
type point struct {
	at time.Time
	// measured by meters, and modelled where there are none.
	measured, modelled float32
	// saved of measured, as levers were proven to save, with the ends of the interval.
	saved, low, high float32
}

// Trend remembers a day of points of each policy. It is safe for concurrent use.
type Trend struct {
	since time.Time
	mu    sync.Mutex
	by    map[string][]point
}

func newTrend(since time.Time) *Trend { return &Trend{since: since, by: map[string][]point{}} }

// add points of one time, by policy. Policies that are gone are forgotten.
func (t *Trend) add(points map[string]point) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name := range t.by {
		if _, there := points[name]; !there {
			delete(t.by, name)
		}
	}
	for name, p := range points {
		if t.by[name] == nil && len(t.by) >= mostPolicies {
			continue
		}
		kept := append(t.by[name], p)
		first := 0
		for first < len(kept) && p.at.Sub(kept[first].at) >= span {
			first++
		}
		t.by[name] = kept[first:]
	}
}

// of returns the points of a policy, the oldest first. They are not changed.
func (t *Trend) of(policy string) []point {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.by[policy]
}

// Remember takes points until the context ends.
func (p *Page) Remember(ctx context.Context) {
	ticker := p.Clock.NewTicker(step)
	defer ticker.Stop()
	for {
		if err := p.take(ctx); err != nil && ctx.Err() == nil {
			p.Log.Error(err, "the power of this minute is missing on the page")
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// take one point of each policy, if there is something to take it from.
func (p *Page) take(ctx context.Context) error {
	if p.Ready() != nil {
		return nil // as the answers say
	}
	ctx, cancel := context.WithTimeout(ctx, dataTimeout)
	defer cancel()
	f, err := facts.Read(ctx, p.objects, p.Clock.Now(), facts.Scope{}, facts.Policies, facts.Plans)
	if err != nil {
		return err
	}
	if err := f.Need(facts.Policies, facts.Plans); err != nil {
		return err
	}
	// What statuses say is of now only while somebody writes them.
	led, err := p.Led(ctx)
	if err != nil {
		return err
	}
	p.trend.add(pointsOf(f, p.Live, led))
	return nil
}

// series are points as columns, which are short. Null: not known.
type series struct {
	// Since is when this manager began to remember.
	Since time.Time `json:"since"`
	// StepSeconds between two points: longer gaps are gaps.
	StepSeconds float64 `json:"stepSeconds"`
	// Times in seconds since 1970.
	Times []int64 `json:"times"`
	// Watts.
	Measured []*float32 `json:"measured"`
	Modelled []*float32 `json:"modelled"`
	Saved    []*float32 `json:"saved"`
	Low      []*float32 `json:"low"`
	High     []*float32 `json:"high"`
}

func (p *Page) trendOf(_ context.Context, query url.Values) (any, error) {
	return seriesOf(p.trend.of(query.Get("policy")), p.trend.since), nil
}

func seriesOf(points []point, since time.Time) series {
	out := series{
		Since: since, StepSeconds: step.Seconds(), Times: []int64{},
		Measured: []*float32{}, Modelled: []*float32{}, Saved: []*float32{}, Low: []*float32{}, High: []*float32{},
	}
	for i := range points {
		p := &points[i]
		out.Times = append(out.Times, p.at.Unix())
		for _, column := range []struct {
			of    *[]*float32
			value float32
		}{{&out.Measured, p.measured}, {&out.Modelled, p.modelled}, {&out.Saved, p.saved}, {&out.Low, p.low}, {&out.High, p.high}} {
			*column.of = append(*column.of, known(column.value))
		}
	}
	return out
}

// known is a value to a tenth, or nil for none.
func known(v float32) *float32 {
	if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
		return nil
	}
	rounded := float32(math.Round(float64(v)*10) / 10)
	return &rounded
}
