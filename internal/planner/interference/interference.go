// Package interference tells from a VM's rates over some minutes whether anything
// keeps it from its network work: other work on the same cores, or its own computing.
//
// Figures become signs, each of which comes when the figure was beyond its limit for a
// while and goes when it was clearly within for longer; signs that are there together
// make the verdict. A single figure that is out of the ordinary moves nothing: a while
// is judged by a quartile of what was seen in it.
package interference

import (
	"math"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
)

// Sample is one reading of a VM.
type Sample struct {
	// Time when the reading's interval ended, and Seconds that it is the mean over.
	Time    time.Time
	Seconds float64
	Rates   *model.VMRates
	// Nested is true on nodes that are VMs themselves, where steal is not trusted.
	Nested bool
	// MaxSteal is the share of one CPU from which on a VM counts as affected: from 0
	// to 1. 0: the default of 5 %.
	MaxSteal float64
}

// History is what is known of one VM. The zero value knows nothing. It holds no
// sample's rates, and does not grow.
type History struct {
	window   window
	signs    [signs]sign
	baseline baseline
	said     model.Disturbance
}

const (
	// longestGap between two samples, beyond which what was before tells nothing of now.
	longestGap = 10 * time.Minute
	// clockStep is how far a sample may be before the last one and is only late: farther
	// back, the agent's clock was set.
	clockStep = time.Minute
)

// Add takes in a sample. One that makes no sense, or is older than the last, is left
// out.
func (h *History) Add(s Sample) {
	figures, ok := read(s)
	if !ok {
		return
	}
	if last, any := h.window.last(); any {
		switch {
		case s.Time.Sub(last) > longestGap || last.Sub(s.Time) > clockStep:
			*h = History{baseline: h.baseline.forgetTime()}
		case !s.Time.After(last):
			return
		}
	}
	if h.window.add(s.Time, figures) {
		h.judge(s)
	}
}

// Disturbance returns the verdict after the last sample.
func (h *History) Disturbance() model.Disturbance {
	said := h.said
	said.Evidence = slices.Clone(said.Evidence)
	return said
}

func (h *History) judge(s Sample) {
	soon, enough := h.window.back(comeAfter, comeSamples)
	if !enough {
		return
	}
	late, long := h.window.back(goAfter, goSamples)
	// Traffic that fell is told from the baseline before it.
	for _, figures := range []*reading{&soon.low, &soon.middle, &soon.high, &late.low, &late.middle, &late.high} {
		figures[throughput] = h.baseline.percent(figures[bits])
	}
	limits := limitsFor(s)
	for i := range h.signs {
		h.signs[i].update(limits[i], soon.of(i), late.of(i), long)
	}
	verdict, heavy := h.verdict(s.Nested)
	if verdict != h.said.Verdict {
		h.said.Since = s.Time
	}
	h.said = model.Disturbance{Verdict: verdict, Heavy: heavy, Since: h.said.Since, Evidence: h.evidence(verdict, s.Nested, limits)}
	h.baseline.learn(s.Time, soon.middle[bits], verdict == model.InterferenceStable && !h.disturbedAtAll())
}

// verdict weighs the signs. Waiting comes first: a VM that waits cannot be judged by
// what it does. Traffic that fell, or packets that were lost, are never enough.
func (h *History) verdict(nested bool) (verdict model.Interference, heavy bool) {
	on := func(i int) bool { return h.signs[i].on }
	waits := on(pathWait) || !nested && on(steal)
	suffers := on(drops) || on(backlog)
	switch {
	case waits && on(ownCPUs):
		// All that its CPUs do is its own: nobody else can make it wait.
		return model.InterferenceSelf, false
	case waits:
		return model.InterferenceCoRunner, !nested && on(heavySteal)
	case on(ownUse) && (suffers || on(throughput)):
		return model.InterferenceSelf, false
	case nested && suffers && !on(ownUse):
		// It has time to take its packets and does not: where it waits is not seen.
		return model.InterferenceCoRunner, false
	}
	return model.InterferenceStable, false
}

// disturbedAtAll tells whether there is any sign that the VM does less than it would.
func (h *History) disturbedAtAll() bool {
	return h.signs[steal].on || h.signs[pathWait].on || h.signs[drops].on || h.signs[backlog].on
}

// evidence lists the signs that speak for a verdict.
func (h *History) evidence(verdict model.Interference, nested bool, limits [signs]limit) []model.Evidence {
	if verdict == model.InterferenceStable {
		return nil
	}
	var out []model.Evidence
	for _, told := range []struct {
		sign model.Sign
		at   int
	}{
		{model.SignSteal, steal}, {model.SignRunQueueWait, pathWait}, {model.SignDrops, drops},
		{model.SignBacklog, backlog}, {model.SignThroughput, throughput}, {model.SignOwnUse, ownUse},
	} {
		speaks := h.signs[told.at].on
		switch {
		case told.sign == model.SignSteal && nested, told.sign == model.SignOwnUse && verdict != model.InterferenceSelf:
			speaks = false
		}
		if speaks {
			out = append(out, model.Evidence{Sign: told.sign, Value: h.signs[told.at].shown, Limit: limits[told.at].come})
		}
	}
	return out
}

// plausible tells whether a figure can have been measured.
func plausible(x, most float64) bool { return !math.IsNaN(x) && x >= 0 && x <= most }
