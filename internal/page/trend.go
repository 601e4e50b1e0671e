package page

import (
	"context"
	"net/url"
	"sync"
	"time"

	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/model"
)

const (
	// step between two points of the manager, and span of them.
	step = time.Minute
	span = time.Hour
)

// point is what the nodes of a policy draw at a time, in watts. Nil: unknown.
type point struct {
	// Time in seconds since 1970.
	Time int64 `json:"time"`
	// Measured by meters, and Modelled for nodes without one.
	Measured *float64 `json:"measured"`
	Modelled *float64 `json:"modelled"`
	// Saved of Measured, as trials have proven, with the ends of the interval.
	Saved *float64 `json:"saved"`
	Low   *float64 `json:"low"`
	High  *float64 `json:"high"`
}

// trend has the last hour of points of each policy. It is safe for concurrent use.
type trend struct {
	since    time.Time
	mu       sync.Mutex
	byPolicy map[string][]point
}

func newTrend(since time.Time) *trend { return &trend{since: since, byPolicy: map[string][]point{}} }

// add adds points of one time, by policy. Deleted policies are forgotten.
func (t *trend) add(points map[string]point) {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := make(map[string][]point, len(points))
	for name, p := range points {
		all := append(t.byPolicy[name], p)
		first := 0
		for first < len(all) && p.Time-all[first].Time > int64(span.Seconds()) {
			first++
		}
		next[name] = all[first:]
	}
	t.byPolicy = next
}

// of returns the points of a policy, the oldest first, for reading only.
func (t *trend) of(policy string) []point {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byPolicy[policy]
}

// NeedLeaderElection is false: managers that stand by serve the page too.
func (p *Page) NeedLeaderElection() bool { return false }

// Start records points until the context ends.
func (p *Page) Start(ctx context.Context) error {
	ticker := p.Clock.NewTicker(step)
	defer ticker.Stop()
	for {
		if err := p.recordPoints(ctx); err != nil && ctx.Err() == nil {
			p.Log.Error(err, "the power of this minute is missing on the page")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// recordPoints adds one point of each policy, if the objects can be read.
func (p *Page) recordPoints(ctx context.Context) error {
	if p.Ready() != nil {
		return nil // each answer of the page says why
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
	led, err := p.Led(ctx)
	if err != nil {
		return err
	}
	p.trend.add(pointsOf(f, p.Live, led))
	return nil
}

// pointsOf returns what the nodes of each policy draw now: measured power from the policies'
// statuses, and modelled power from the leader. Without a leader the statuses are too old.
func pointsOf(f *facts.Facts, live Live, led bool) map[string]point {
	policyOf := make(map[string]string, len(f.Plans))
	for i := range f.Plans {
		policyOf[f.Plans[i].Name] = f.Plans[i].Spec.Policy
	}
	modelled := map[string]float64{}
	live.EachPower(func(node string, power model.Power, metered bool) {
		if !metered && power.Source == v1alpha1.PowerModel {
			modelled[policyOf[node]] += float64(power.Watts)
		}
	})
	out := map[string]point{}
	for i := range f.Policies {
		policy := &f.Policies[i]
		p := point{Time: f.Now.Unix()}
		if watts, known := modelled[policy.Name]; known {
			p.Modelled = &watts
		}
		s := proven(policy)
		if led && policy.Status.Watts != nil {
			p.Measured = ptr.To(float64(*policy.Status.Watts))
			if s == nil {
				s = &saving{}
			}
		}
		if led && s != nil {
			p.Saved, p.Low, p.High = &s.Watts, &s.Low, &s.High
		}
		out[policy.Name] = p
	}
	return out
}

// saving is a power with the ends of its interval, in watts.
type saving struct {
	Watts float64 `json:"watts"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// proven is what all levers of a policy together were measured to save now, or nil. The ends
// of the levers' intervals are added, which is wider than need be.
func proven(policy *v1alpha1.EnergyPolicy) *saving {
	var sum *saving
	for _, s := range policy.Status.Proven {
		if sum == nil {
			sum = &saving{}
		}
		sum.Watts += s.Watts.Value.Float()
		sum.Low += s.Watts.Low.Float()
		sum.High += s.Watts.High.Float()
	}
	return sum
}

// trendView is the points of a policy, the oldest first.
type trendView struct {
	// Since when the manager records.
	Since time.Time `json:"since"`
	// StepSeconds between two points: longer gaps are gaps.
	StepSeconds float64 `json:"stepSeconds"`
	Points      []point `json:"points"`
}

// readTrend returns the last hour of a policy's power.
func (p *Page) readTrend(_ context.Context, query url.Values) (any, error) {
	points := append([]point{}, p.trend.of(query.Get("policy"))...)
	return trendView{Since: p.trend.since, StepSeconds: step.Seconds(), Points: points}, nil
}
