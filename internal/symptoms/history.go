package symptoms

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Sample is one reading of a VM.
type Sample struct {
	// Time when the figures's interval ended, and Seconds that it is the mean over.
	Time    time.Time
	Seconds float64
	Rates   *model.VMRates
	// Node has the rates of all VMs of its node.
	Node *model.NodeRates
	// Nested is true on nodes that are VMs themselves, where steal is not trusted.
	Nested bool
	// MaxSteal is the share of one CPU from which on a VM counts as affected: from 0
	// to 1. 0: the default of 5 %.
	MaxSteal float64
}

// History is what is known of one VM. The zero value knows nothing. It holds no
// sample's rates, and does not grow.
type History struct {
	window window
	// waited is how long each vCPU waits, in percent of one CPU.
	waited   []float64
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

// Add records a sample. One without vCPUs, or older than the last, is left out.
func (h *History) Add(s Sample) {
	if len(s.Rates.VCPUs) == 0 {
		return
	}
	sample := read(s.Rates, s.Node)
	sample[steal] = h.worstWait(s.Rates.VCPUs, 2*limitsFor(s)[heavySteal].come)
	sample[heavySteal] = sample[steal]
	if last, any := h.window.last(); any {
		switch {
		case s.Time.Sub(last) > longestGap || last.Sub(s.Time) > clockStep:
			*h = History{baseline: h.baseline.forgetTime()}
		case !s.Time.After(last):
			return
		}
	}
	if h.window.add(s.Time, sample) {
		h.judge(s)
	}
}

// worstWait is how long the vCPU waits that waits most, in percent of one CPU. Rates are of single
// seconds, in which one of several vCPUs is often kept waiting: each is smoothed over a minute first,
// and no second counts for more than most.
func (h *History) worstWait(vcpus []model.VCPURates, most float64) float64 {
	const newest = 0.3
	worst, known := 0.0, len(h.waited) == len(vcpus)
	if !known {
		h.waited = make([]float64, len(vcpus))
	}
	for i := range vcpus {
		now := min(most, 100*float64(vcpus[i].WaitCores))
		if known {
			now = h.waited[i] + newest*(now-h.waited[i])
		}
		h.waited[i] = now
		worst = max(worst, now)
	}
	return worst
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
	// Traffic that fell is reported from the baseline before it.
	for _, f := range []*figures{&soon.low, &soon.middle, &soon.high, &late.low, &late.middle, &late.high} {
		f[throughput] = h.baseline.percent(f[bits])
	}
	limits := limitsFor(s)
	for i := range h.signs {
		h.signs[i].update(limits[i], soon.of(i), late.of(i), long)
		seen := soon.of(i)
		if i == steal {
			seen = soon.of(worstWait)
		}
		h.signs[i].show(limits[i], seen)
	}
	verdict, heavy := h.waits(s.Nested)
	lost := losses(verdict, &soon.middle)
	if h.signs[throttled].on {
		verdict, heavy = v1alpha1.CauseOwnLimit, false
	}
	if verdict != h.said.Verdict {
		h.said.Since = s.Time
	}
	h.said = model.Disturbance{
		Verdict: verdict, Heavy: heavy, Since: h.said.Since, Evidence: h.evidence(verdict, s.Nested, limits),
		Limit: units.Cores(soon.middle[limited]), Lost: lost,
	}
	h.baseline.learn(s.Time, soon.middle[bits], verdict == v1alpha1.CauseStable && !h.disturbedAtAll())
}

// waits weighs the signs apart from those of the VM's CPU limit. Waiting comes first: a VM that
// waits cannot be judged by what it does. Traffic that fell, or packets that were lost, are never
// enough.
func (h *History) waits(nested bool) (verdict v1alpha1.Cause, heavy bool) {
	on := func(i int) bool { return h.signs[i].on }
	waits := on(pathWait) || !nested && on(steal)
	suffers := on(drops) || on(backlog)
	switch {
	case waits && on(ownCPUs):
		// All that its CPUs do is its own: nobody else can make it wait.
		return v1alpha1.CauseOwnWork, false
	case waits && on(outweighed):
		return v1alpha1.CauseOwnWeight, false
	case waits:
		return v1alpha1.CauseNeighbour, !nested && on(heavySteal)
	case on(ownUse) && (suffers || on(throughput)):
		return v1alpha1.CauseOwnWork, false
	case nested && suffers && !on(ownUse):
		// It has time to take its packets and does not: where it waits is not seen.
		return v1alpha1.CauseNeighbour, false
	}
	return v1alpha1.CauseStable, false
}

// disturbedAtAll reports whether there is any sign that the VM does less than it would.
func (h *History) disturbedAtAll() bool {
	return h.signs[throttled].on || h.signs[steal].on || h.signs[pathWait].on || h.signs[drops].on || h.signs[backlog].on
}

// evidence lists the signs that speak for a verdict.
func (h *History) evidence(verdict v1alpha1.Cause, nested bool, limits [signs]limit) []model.Evidence {
	if verdict == v1alpha1.CauseStable {
		return nil
	}
	var out []model.Evidence
	for _, reported := range []struct {
		sign model.Sign
		at   int
	}{
		{model.SignThrottled, throttled}, {model.SignOutweighed, outweighed}, {model.SignSteal, steal}, {model.SignRunQueueWait, pathWait}, {model.SignDrops, drops},
		{model.SignBacklog, backlog}, {model.SignThroughput, throughput}, {model.SignOwnUse, ownUse},
	} {
		speaks := h.signs[reported.at].on
		switch {
		case reported.sign == model.SignSteal && nested, reported.sign == model.SignOutweighed && verdict != v1alpha1.CauseOwnWeight,
			reported.sign == model.SignOwnUse && verdict != v1alpha1.CauseOwnWork:
			speaks = false
		}
		if speaks {
			out = append(out, model.Evidence{Sign: reported.sign, Value: h.signs[reported.at].shown, Limit: limits[reported.at].come})
		}
	}
	return out
}

// losses are what a VM lacks, by cause.
func losses(verdict v1alpha1.Cause, seen *figures) []model.Loss {
	var out []model.Loss
	if cores := rounded(seen[limitLost]); cores > 0 {
		out = append(out, model.Loss{Cause: v1alpha1.CauseOwnLimit, Cores: units.Cores(cores)})
	}
	if cores := rounded(seen[waitLost]); cores > 0 && verdict.Disturbs() {
		out = append(out, model.Loss{Cause: verdict, Cores: units.Cores(cores)})
	}
	return out
}

// Advice says in words what would help a VM, and who can do it. It is empty where nothing need be done.
func Advice(d model.Disturbance) string {
	switch d.Verdict {
	case v1alpha1.CauseOwnLimit:
		more := 1.0
		for _, loss := range d.Lost {
			if loss.Cause == v1alpha1.CauseOwnLimit {
				more = max(1, math.Ceil(float64(loss.Cores)))
			}
		}
		return fmt.Sprintf("raise limits.cpu by %g, or remove it; a limit that nobody set comes from a quota or LimitRange of the namespace", more)
	case v1alpha1.CauseOwnWeight:
		return "request more CPU (spec.domain.resources.requests.cpu): what a VM requests is its weight"
	case v1alpha1.CauseNeighbour:
		if d.Heavy {
			return "move the VM to another node, or the VMs that it shares the cores with: if this persists, a restart on the same node does not help"
		}
		return "where the policy allows levers Affinity and Slice, VMs are kept apart; requesting more CPU gives the VM more weight among others"
	case v1alpha1.CauseOwnWork:
		if slices.ContainsFunc(d.Evidence, func(e model.Evidence) bool { return e.Sign == model.SignOwnUse }) {
			return "give the VM more vCPUs, with a network queue for each (networkInterfaceMultiqueue) and vhost-net on the node, or move its computing to another VM"
		}
		return "the VM's own threads wait for each other: let it run on more cores, or give it fewer vCPUs"
	}
	return ""
}
