package agent

import (
	"testing"
	"time"
)

// TestTheAgentsOwnTime: what the agent itself used is told with the totals, and goes on
// when those start over.
func TestTheAgentsOwnTime(t *testing.T) {
	m := newMeteredAgent(t)
	m.rounds(3)
	if used := m.rates().Totals.AgentSeconds; used != 0 {
		t.Errorf("%v s of an agent that does not tell", used)
	}
	used := 90 * time.Second
	m.agent.opts.CPUTime = func() time.Duration { used += 20 * time.Millisecond; return used }
	m.rounds(5)
	if got := m.rates().Totals.AgentSeconds; got != 90.1 {
		t.Errorf("%v s after five rounds", got)
	}
	since := m.rates().Totals.Since
	m.node.nested = true // another source of power: the totals start over
	m.rounds(120)
	if got := m.rates().Totals; got.Since.Equal(since) || got.AgentSeconds < 92.4 || got.AgentSeconds > 92.6 {
		t.Errorf("%+v after 125 rounds", got)
	}
}
