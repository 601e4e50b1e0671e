package policy

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/statuses"
	"github.com/joulevirt/joulevirt/internal/ledger"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/trials"
	"github.com/joulevirt/joulevirt/internal/units"
)

// actingLevers are the levers that are in force, by unit, see model.LeversOf.
type actingLevers map[string]map[v1alpha1.Lever]bool

func (a actingLevers) note(unit string, lever v1alpha1.Lever) {
	if a[unit] == nil {
		a[unit] = map[v1alpha1.Lever]bool{}
	}
	a[unit][lever] = true
}

// standing is how a lever stands on a set of units, for people.
type standing struct {
	*trials.State
	stance model.Stance
	// units of the set, and acts if the lever acts on one of them, held back for a slot or not.
	units []trials.Unit
	acts  bool
	// effect is the logarithm of joules for the same work. Nil: nothing is known.
	effect *ledger.Range
}

// standingsOf reads how levers stand.
func standingsOf(t *trials.Trials, acting actingLevers) []standing {
	var all []standing
	for _, state := range t.States {
		one := *state
		s := standing{State: &one, stance: state.Stance, units: t.Members(state)}
		if effect, ok := state.Measured(); ok {
			s.effect = &effect
		}
		approved := false
		for i := range s.units {
			s.acts = s.acts || acting[s.units[i].Name][state.Lever]
			approved = approved || s.units[i].Approved
		}
		if approved && state.Stance != model.StanceRejected {
			s.stance = model.StanceUnproven // It acts without a trial, and is measured by what is held back.
		}
		all = append(all, s)
	}
	return all
}

// isProven reports whether a lever was measured to save.
func (s *standing) isProven() bool {
	return (s.stance == model.StanceAdopted || s.stance == model.StanceUnproven) && s.effect != nil && s.effect.High < 0
}

// provenNow returns what levers that were adopted, and act, save of what metered nodes draw now. Of a
// group one of whose nodes has no meter, or is of another policy, nothing is known.
func provenNow(standings []standing, tally policyTally, onNow func(unit string, lever v1alpha1.Lever) bool) []v1alpha1.Saving {
	type sum struct{ value, variance float64 }
	sums := map[v1alpha1.Lever]*sum{}
	for i := range standings {
		s := &standings[i]
		if s.effect == nil || s.stance != model.StanceAdopted {
			continue
		}
		watts := 0.
		for _, unit := range s.units {
			if drawn, known := drawnBy(unit.Nodes, tally.metered); known && tally.acting[unit.Name][s.Lever] && onNow(unit.Name, s.Lever) {
				watts += drawn
			}
		}
		if watts == 0 {
			continue
		}
		if sums[s.Lever] == nil {
			sums[s.Lever] = &sum{}
		}
		half := watts * (math.Exp(-s.effect.Low) - math.Exp(-s.effect.High)) / 2
		sums[s.Lever].value += watts * math.Expm1(-s.effect.Value)
		sums[s.Lever].variance += half * half
	}
	var out []v1alpha1.Saving
	for _, lever := range slices.Sorted(maps.Keys(sums)) {
		value, half := sums[lever].value, math.Sqrt(sums[lever].variance)
		if watts, ok := statuses.EstimateOf(ledger.Range{Value: value, Low: value - half, High: value + half}, savedDigits); ok {
			out = append(out, v1alpha1.Saving{Lever: lever, Watts: watts})
		}
	}
	return out
}

// drawnBy nodes together. False: not of all is it known by a meter.
func drawnBy(nodes []string, metered map[string]units.Watts) (float64, bool) {
	sum := 0.0
	for _, node := range nodes {
		watts, known := metered[node]
		if !known {
			return 0, false
		}
		sum += float64(watts)
	}
	return sum, true
}

// mostProvenNamed is how many levers and classes a message names.
const mostProvenNamed = 4

// savingsProven reports whether a lever acts that was measured to save, and else why none
// does.
func savingsProven(policy *v1alpha1.EnergyPolicy, view savingsView, tally policyTally) metav1.Condition {
	by := map[model.Stance][]string{}
	var saving, idle []string
	for i := range view.standings {
		s := &view.standings[i]
		by[s.stance] = append(by[s.stance], standingWords(s))
		switch {
		case s.isProven() && s.acts:
			saving = append(saving, standingWords(s))
		case s.isProven():
			idle = append(idle, standingWords(s))
		}
	}
	say := func(reason, format string, args ...any) metav1.Condition {
		return metav1.Condition{
			Type: v1alpha1.ConditionSavingsProven, Status: metav1.ConditionFalse, Reason: reason,
			Message: fmt.Sprintf(format, args...),
		}
	}
	switch {
	case policy.Spec.Mode == v1alpha1.ModeObserve:
		return say(v1alpha1.ReasonObserveOnly, "mode Observe lets no lever act: status.potential tells what they would save by the models")
	case policy.Spec.Paused:
		return say(v1alpha1.ReasonPaused, "spec.paused undoes what was done, so that nothing is saved: set it to false for levers that were adopted to act again")
	case len(saving) > 0:
		condition := say(v1alpha1.ReasonLeverAdopted, "by trials or hold-backs: %s", namedWords(saving))
		condition.Status = metav1.ConditionTrue
		return condition
	case len(by[model.StanceOnTrial]) > 0:
		return say(v1alpha1.ReasonOnTrial, "on trial: %s", namedWords(by[model.StanceOnTrial]))
	case len(idle) > 0:
		return say(v1alpha1.ReasonNoneInForce, "measured to save, and in force nowhere now: %s. See status.coverage for why", namedWords(idle))
	case tally.nodes.Metered == 0:
		return say(v1alpha1.ReasonNoMeter, "no governed node has a meter, and what models tell proves nothing: see condition MeterAvailable")
	case len(by[model.StanceAwaiting]) > 0:
		return say(v1alpha1.ReasonAwaitingTrial, "waiting for their trials: %s", namedWords(by[model.StanceAwaiting]))
	case len(by[model.StanceRejected])+len(by[model.StanceUndecided]) > 0:
		tried := slices.Concat(by[model.StanceRejected], by[model.StanceUndecided])
		return say(v1alpha1.ReasonNoneAdopted, "tried, and not in use: %s", namedWords(tried))
	}
	return say(v1alpha1.ReasonNothingToDo, "no lever of the policy has something to do that a trial could measure: see status.coverage")
}

// standingWords tell of one lever on one class, with figures.
func standingWords(s *standing) string {
	words := fmt.Sprintf("%s on %s", s.Lever, statuses.Cut(s.Set(), mostTrialClass/2))
	if s.effect != nil {
		if e := estimated(s.effect.PercentLess()); e != nil {
			words += fmt.Sprintf(" saves %s %% (%s to %s)", e.Value, e.Low, e.High)
		}
	}
	if s.stance == model.StanceOnTrial {
		words += fmt.Sprintf(", %d of at most %d pairs of slots", s.pairs(), s.Planned())
	}
	return words
}

// pairs of slots that each unit has done at the last look.
func (s *standing) pairs() int {
	if s.Effect == nil {
		return 0
	}
	return s.Effect.Pairs
}

// namedWords joins the first of several.
func namedWords(words []string) string {
	text := strings.Join(words[:min(len(words), mostProvenNamed)], "; ")
	if more := len(words) - mostProvenNamed; more > 0 {
		text += fmt.Sprintf("; and %d more, see status.trials", more)
	}
	return text
}
