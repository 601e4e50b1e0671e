package load

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// maxReasons bounds the kinds of failures that are distinguished.
const maxReasons = 16

// Counts is what came of requests.
type Counts struct {
	// Answers by who gave them.
	Answers map[string]int
	// Failures: no connection, no answer or another one than 200.
	Failures int
	// Paused counts requests that failed while the machine stood still. They are no Failures.
	Paused int
	// Reasons counts failures by what was said. Rare ones may be missing.
	Reasons map[string]int
}

func newCounts() Counts { return Counts{Answers: map[string]int{}, Reasons: map[string]int{}} }

func (c *Counts) add(name string, err error) {
	if err == nil {
		c.Answers[name]++
		return
	}
	c.Failures++
	if _, known := c.Reasons[err.Error()]; known || len(c.Reasons) < maxReasons {
		c.Reasons[err.Error()]++
	}
}

func (c Counts) clone() Counts {
	return Counts{Answers: maps.Clone(c.Answers), Failures: c.Failures, Paused: c.Paused, Reasons: maps.Clone(c.Reasons)}
}

// Since returns what came after before was counted.
func (c Counts) Since(before Counts) Counts {
	since := c.clone()
	since.Failures -= before.Failures
	since.Paused -= before.Paused
	for _, pair := range []struct{ now, then map[string]int }{{since.Answers, before.Answers}, {since.Reasons, before.Reasons}} {
		for name, n := range pair.then {
			if pair.now[name] -= n; pair.now[name] == 0 {
				delete(pair.now, name)
			}
		}
	}
	return since
}

// Total is the number of answers.
func (c Counts) Total() int {
	total := 0
	for _, n := range c.Answers {
		total += n
	}
	return total
}

// Share is the part of the answers that one gave: 0 to 1.
func (c Counts) Share(name string) float64 {
	return float64(c.Answers[name]) / float64(max(1, c.Total()))
}

// Error is the largest difference, in points (hundredths of the whole), between
// the measured shares and the wanted ones, which add up to 1. Who is not among
// the wanted should have answered nothing.
func (c Counts) Error(wanted map[string]float64) float64 {
	worst := 0.0
	for name := range wanted {
		worst = max(worst, math.Abs(c.Share(name)-wanted[name]))
	}
	for name := range c.Answers {
		worst = max(worst, math.Abs(c.Share(name)-wanted[name]))
	}
	return 100 * worst
}

// NoFailures is an error that quotes the failures, if there are any.
func (c Counts) NoFailures() error {
	if c.Failures == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d requests failed: %s", c.Failures, c.Failures+c.Total(), strings.Join(c.reasons(), "; "))
}

// String implements fmt.Stringer.
func (c Counts) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(c.Answers)) {
		parts = append(parts, fmt.Sprintf("%s %.1f %%", name, 100*c.Share(name)))
	}
	parts = append(parts, fmt.Sprintf("of %d answers; %d failures", c.Total(), c.Failures))
	if c.Paused > 0 {
		parts = append(parts, fmt.Sprintf("%d more while the machine stood still", c.Paused))
	}
	return strings.Join(append(parts, c.reasons()...), ", ")
}

func (c Counts) reasons() []string {
	var all []string
	for _, reason := range slices.Sorted(maps.Keys(c.Reasons)) {
		all = append(all, fmt.Sprintf("%d times %s", c.Reasons[reason], reason))
	}
	return all
}
