package symptoms

import (
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

// Sample is one reading of a VM.
type Sample struct {
	// Time when the figures's interval ended, and Seconds that it is the mean over.
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

// Add records a sample. One without vCPUs, or older than the last, is left out.
func (h *History) Add(s Sample) {
	if len(s.Rates.VCPUs) == 0 {
		return
	}
	sample := read(s.Rates)
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
	}
	verdict, heavy := h.verdict(s.Nested)
	if verdict != h.said.Verdict {
		h.said.Since = s.Time
	}
	h.said = model.Disturbance{Verdict: verdict, Heavy: heavy, Since: h.said.Since, Evidence: h.evidence(verdict, s.Nested, limits)}
	h.baseline.learn(s.Time, soon.middle[bits], verdict == v1alpha1.InterferenceStable && !h.disturbedAtAll())
}

// verdict weighs the signs. Waiting comes first: a VM that waits cannot be judged by
// what it does. Traffic that fell, or packets that were lost, are never enough.
func (h *History) verdict(nested bool) (verdict v1alpha1.Interference, heavy bool) {
	on := func(i int) bool { return h.signs[i].on }
	waits := on(pathWait) || !nested && on(steal)
	suffers := on(drops) || on(backlog)
	switch {
	case waits && on(ownCPUs):
		// All that its CPUs do is its own: nobody else can make it wait.
		return v1alpha1.InterferenceSelf, false
	case waits:
		return v1alpha1.InterferenceCoRunner, !nested && on(heavySteal)
	case on(ownUse) && (suffers || on(throughput)):
		return v1alpha1.InterferenceSelf, false
	case nested && suffers && !on(ownUse):
		// It has time to take its packets and does not: where it waits is not seen.
		return v1alpha1.InterferenceCoRunner, false
	}
	return v1alpha1.InterferenceStable, false
}

// disturbedAtAll reports whether there is any sign that the VM does less than it would.
func (h *History) disturbedAtAll() bool {
	return h.signs[steal].on || h.signs[pathWait].on || h.signs[drops].on || h.signs[backlog].on
}

// evidence lists the signs that speak for a verdict.
func (h *History) evidence(verdict v1alpha1.Interference, nested bool, limits [signs]limit) []model.Evidence {
	if verdict == v1alpha1.InterferenceStable {
		return nil
	}
	var out []model.Evidence
	for _, reported := range []struct {
		sign model.Sign
		at   int
	}{
		{model.SignSteal, steal}, {model.SignRunQueueWait, pathWait}, {model.SignDrops, drops},
		{model.SignBacklog, backlog}, {model.SignThroughput, throughput}, {model.SignOwnUse, ownUse},
	} {
		speaks := h.signs[reported.at].on
		switch {
		case reported.sign == model.SignSteal && nested, reported.sign == model.SignOwnUse && verdict != v1alpha1.InterferenceSelf:
			speaks = false
		}
		if speaks {
			out = append(out, model.Evidence{Sign: reported.sign, Value: h.signs[reported.at].shown, Limit: limits[reported.at].come})
		}
	}
	return out
}

// Advice says in words what would help a VM. It is empty where nothing need be done.
func Advice(d model.Disturbance) string {
	switch {
	case d.Verdict == v1alpha1.InterferenceCoRunner && d.Heavy:
		return "move the VM to another node, or the VMs that it shares the cores with: if this persists, a restart on the same node does not help"
	case d.Verdict == v1alpha1.InterferenceCoRunner:
		return "where the policy allows levers Affinity and Slice, VMs are kept apart; requesting more CPU gives the VM more weight among others"
	case d.Verdict != v1alpha1.InterferenceSelf:
		return ""
	}
	busy := slices.ContainsFunc(d.Evidence, func(e model.Evidence) bool { return e.Sign == model.SignOwnUse })
	if !busy {
		return "the VM's own threads wait for each other: let it run on more cores, or give it fewer vCPUs"
	}
	return "give the VM more vCPUs, with a network queue for each (networkInterfaceMultiqueue) and vhost-net on the node, or move its computing to another VM"
}
