package observe

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/observe/credible"
)

// lostFor is how long a node counts as one whose meter is lost, rather than as one that has
// none: an outage of a night, or of a weekend's first day, is for people to end.
const lostFor = 24 * time.Hour

// MeterPast remembers when nodes were metered last. It is safe for concurrent use. A nil one
// remembers nothing.
type MeterPast struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// NewMeterPast returns an empty memory.
func NewMeterPast() *MeterPast { return &MeterPast{last: map[string]time.Time{}} }

// Metered notes that a node's power is measured now, or was when an earlier manager knew it
// last.
func (p *MeterPast) Metered(node string, now time.Time) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last[node] = now
}

// Retain forgets all nodes but those given.
func (p *MeterPast) Retain(names map[string]bool) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.last, func(name string, _ time.Time) bool { return !names[name] })
}

// Lose tells, of a node of which no meter knows the power, when it was metered last, if it
// lost its meter rather than has none: one of the policy's sources is to be a meter, and one
// was within a day. The zero value: it has none, or has one, or that is not known yet.
func (p *MeterPast) Lose(node string, settings []energy.Setting, choice *energy.Choice, now time.Time) time.Time {
	if p == nil || choice.Metered || choice.Unknown {
		return time.Time{}
	}
	for _, setting := range settings {
		if !setting.Type.Measures() {
			continue
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if last, known := p.last[node]; known && now.Sub(last) < lostFor {
			return last
		}
		break
	}
	return time.Time{}
}

// LostUntil is until when a node that was metered last at a time counts as one whose meter is
// lost.
func LostUntil(last time.Time) time.Time { return last.Add(lostFor) }

// Doubts tell when nodes' meters are to be believed.
type Doubts interface {
	Meter(node string) credible.Verdict
}

// suspicion is why what a meter says is not believed. Nil: it is. The message holds no
// figure of now: it is constant while the doubt lasts.
func suspicion(doubts Doubts, node string, choice *energy.Choice) *energy.Attempt {
	if doubts == nil || !choice.Metered {
		return nil
	}
	verdict := doubts.Meter(node)
	since := verdict.Since()
	if since.IsZero() {
		return nil
	}
	return &energy.Attempt{
		Type: choice.Source, Reason: energy.ReasonSuspect,
		Message: fmt.Sprintf("since %s by the node's clock it is at another level, which neither the node's load nor a lever explains: "+
			"look at the meter, and for work on the node that is none of its CPUs', such as fans and accelerators; nothing is judged or booked meanwhile",
			since.UTC().Format(time.RFC3339)),
	}
}
