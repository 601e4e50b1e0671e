package policy

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/statuses"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// provenSum adds up what one lever saves now.
type provenSum struct {
	watts  float64
	errors verify.ErrorSum
	// common are the parts of the errors that units of a class share, by class.
	common map[string]commonPart
}

// commonPart is an error that several units share, with its least degrees of freedom.
type commonPart struct{ watts, freedom float64 }

// actingLevers are the levers that are in force, by unit: a node, or a group as
// "namespace/name".
type actingLevers map[string]map[v1alpha1.Lever]bool

func (a actingLevers) note(unit string, lever v1alpha1.Lever) {
	if a[unit] == nil {
		a[unit] = map[v1alpha1.Lever]bool{}
	}
	a[unit][lever] = true
}

// provenBy is what a saving is reckoned by: what metered nodes draw, and which levers act
// now.
type provenBy struct {
	metered map[string]units.Watts
	acting  actingLevers
	now     time.Time
}

// saves reports whether a lever that was adopted acts on a unit now, and is not held back. The
// unit's agent may switch some minutes apart from this clock.
func (b provenBy) saves(unit string, stands *model.Proof) bool {
	on := stands.Schedule == nil || stands.Schedule.At(b.now).On
	return stands.Stance == model.StanceAdopted && stands.Use && b.acting[unit][stands.Lever] && on
}

// provenNow tells what levers that were adopted, and act, save of what metered nodes draw
// now, by their watts. A group saves of what its nodes draw together; one of which a node has
// no meter, or is of another policy, is left out.
func provenNow(p *proof.Proofs, by provenBy) []v1alpha1.Saving {
	sums := map[v1alpha1.Lever]*provenSum{}
	for _, unit := range p.Units() {
		watts, known := drawnBy(unit.Nodes, by.metered)
		if !known {
			continue
		}
		for _, stands := range p.Of(unit.Name) {
			effect := p.Effect(unit.Name, stands.Lever)
			if !by.saves(unit.Name, &stands) || !effect.IsKnown() {
				continue
			}
			sum := sums[stands.Lever]
			if sum == nil {
				sum = &provenSum{common: map[string]commonPart{}}
				sums[stands.Lever] = sum
			}
			// A unit of which the class is not known has its errors for itself.
			class := unit.Name
			if unit.Class != (verify.Class{}) {
				class = unit.Class.String()
			}
			sum.add(watts, class, effect)
		}
	}
	var out []v1alpha1.Saving
	for _, lever := range slices.Sorted(maps.Keys(sums)) {
		if saving, ok := sums[lever].saving(lever); ok {
			out = append(out, saving)
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

// add a unit that draws watts with the lever on.
func (s *provenSum) add(watts float64, class string, effect verify.Shrunk) {
	without := watts * math.Exp(-effect.Log)
	s.watts += without - watts
	s.errors.Add(without*effect.Own, effect.Freedom)
	if effect.Common > 0 {
		part := s.common[class]
		part.watts += without * effect.Common
		if part.freedom == 0 || effect.CommonFreedom < part.freedom {
			part.freedom = effect.CommonFreedom
		}
		s.common[class] = part
	}
}

// half is by how much the interval reaches to each side.
func (s *provenSum) half() float64 {
	errors := s.errors
	for _, class := range slices.Sorted(maps.Keys(s.common)) {
		errors.Add(s.common[class].watts, s.common[class].freedom)
	}
	return errors.Half(ledger.Confidence)
}

// saving is rounded as all figures are. False: no number tells it.
func (s *provenSum) saving(lever v1alpha1.Lever) (v1alpha1.Saving, bool) {
	half := s.half()
	watts, ok := statuses.EstimateOf(ledger.Range{Value: s.watts, Low: s.watts - half, High: s.watts + half}, savedDigits)
	return v1alpha1.Saving{Lever: lever, Watts: watts}, ok
}

// mostProvenNamed is how many levers and classes a message names.
const mostProvenNamed = 4

// actingStandings tells of each standing whether its lever acts on a unit of it, held back
// for a block or not.
func actingStandings(p *proof.Proofs, standings []proof.Standing, acting actingLevers) []bool {
	type place struct {
		lever v1alpha1.Lever
		class verify.Class
	}
	acts := map[place]bool{}
	for _, unit := range p.Units() {
		for lever := range acting[unit.Name] {
			acts[place{lever, unit.Class}] = true
		}
	}
	all := make([]bool, len(standings))
	for i := range standings {
		s := &standings[i]
		if s.Unit != "" {
			all[i] = acting[s.Unit][s.Lever]
		} else {
			all[i] = acts[place{s.Lever, s.Class}]
		}
	}
	return all
}

// savingsProven reports whether a lever acts that was measured to save, and else why none
// does.
func savingsProven(policy *v1alpha1.EnergyPolicy, view savingsView, tally policyTally) metav1.Condition {
	by := map[model.Stance][]string{}
	var saving, idle []string
	for i := range view.standings {
		s := &view.standings[i]
		by[s.Stance] = append(by[s.Stance], standingWords(s))
		// What acts without a trial is measured by what is held back.
		proven := (s.Stance == model.StanceAdopted || s.Stance == model.StanceUnproven) && s.Known && s.High < 0
		switch {
		case proven && view.acts[i]:
			saving = append(saving, standingWords(s))
		case proven:
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
func standingWords(s *proof.Standing) string {
	words := fmt.Sprintf("%s on %s", s.Lever, statuses.Cut(classWords(s), mostTrialClass/2))
	if s.Known {
		if e := estimated(savedPercent(s)); e != nil {
			words += fmt.Sprintf(" saves %s %% (%s to %s)", e.Value, e.Low, e.High)
		}
	}
	if s.Stance == model.StanceOnTrial {
		words += fmt.Sprintf(", %d of at most %d pairs of blocks", s.Pairs, s.Planned)
	}
	return words
}

// namedWords joins the first of several.
func namedWords(words []string) string {
	text := strings.Join(words[:min(len(words), mostProvenNamed)], "; ")
	if more := len(words) - mostProvenNamed; more > 0 {
		text += fmt.Sprintf("; and %d more, see status.trials", more)
	}
	return text
}
