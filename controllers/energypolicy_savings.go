package controllers

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/proofs"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// defaultConfidence is the API's own default, for policies stored before it.
const defaultConfidence = 95

// savingsSources are where a policy's status has its savings from.
type savingsSources struct {
	memory *proofs.Store
	// conditions of a policy's memory and evidence, and its tariff.
	conditions func(*v1alpha1.EnergyPolicy) []metav1.Condition
	tariff     func(*v1alpha1.EnergyPolicy) knownTariff
	// proven is what levers save on nodes, as of the last statuses.
	proven provenStore
}

// savingsView is what is remembered of one policy, as its status tells it.
type savingsView struct {
	statements []ledger.Statement
	standings  []proof.Standing
	// acts tells of each of the standings whether the lever acts on a unit of it.
	acts   []bool
	proven []v1alpha1.Saving
	// each is the part of proven that each unit has.
	each []provenOfUnit
}

// write gives the status its savings. What is not known yet stays as it was.
func (s *savingsSources) write(status *v1alpha1.EnergyPolicyStatus, policy *v1alpha1.EnergyPolicy, tally policyTally, now time.Time) {
	if s == nil {
		return
	}
	tariff := s.tariff(policy)
	status.Tariff = tariffStatus(policy, tariff)
	conditions := s.conditions(policy)
	if tariff.condition != nil {
		conditions = append(conditions, *tariff.condition)
	}
	var view savingsView
	known := s.memory.View(policy.Name, func(p *proof.Proofs, l *ledger.Ledger) {
		view = viewSavings(p, l, confidenceOf(policy), tally, now)
	})
	if known {
		status.Savings = savings(view.statements, tariff)
		status.Trials = leverTrials(view.standings)
		status.Proven = view.proven
		s.proven.put(policy.Name, view.each)
		conditions = append(conditions, savingsProven(policy, view, tally))
	} else {
		status.Savings, status.Trials, status.Proven = policy.Status.Savings, policy.Status.Trials, policy.Status.Proven
	}
	setConditions(&status.Conditions, conditions, policy.Generation, now)
	if policy.Spec.Tariff == nil {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionTariffKnown)
	}
	if len(policy.Spec.Verification.Evidence) == 0 {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionEvidenceImported)
	}
}

func confidenceOf(policy *v1alpha1.EnergyPolicy) float64 {
	return float64(cmp.Or(policy.Spec.Verification.ConfidencePercent, defaultConfidence)) / 100
}

// viewSavings reads what is remembered.
func viewSavings(p *proof.Proofs, l *ledger.Ledger, confidence float64, tally policyTally, now time.Time) savingsView {
	month := ledger.MonthOf(now)
	view := savingsView{standings: p.Standings()}
	view.proven, view.each = provenNow(p, provenBy{tally.metered, tally.acting, now}, confidence)
	view.acts = actingStandings(p, view.standings, tally.acting)
	for _, modelled := range []bool{false, true} {
		for _, m := range []ledger.Month{month, month - 1, ledger.AllTime} {
			if statement := l.Statement(m, modelled, confidence); isBooked(&statement) {
				view.statements = append(view.statements, statement)
			}
		}
	}
	return view
}

func isBooked(s *ledger.Statement) bool { return len(s.Lines) > 0 || s.Drawn > 0 || s.Own.Value != 0 }

// savings as the API tells them.
func savings(statements []ledger.Statement, tariff knownTariff) []v1alpha1.Savings {
	var out []v1alpha1.Savings
	for i := range statements {
		s := &statements[i]
		net, ok := estimate(s.Net.KWh())
		if !ok {
			continue
		}
		entry := v1alpha1.Savings{Basis: basisOf(s.Modelled), Period: periodOf(s.Month), KilowattHours: net}
		if s.Own.Value != 0 {
			entry.OwnKilowattHours = estimated(s.Own.KWh())
		}
		for _, line := range s.Lines {
			if saved, ok := estimate(line.Saved.KWh()); ok {
				entry.Levers = append(entry.Levers, v1alpha1.LeverSavings{Lever: v1alpha1.Lever(line.Lever), KilowattHours: saved})
			}
		}
		if with, without, ok := s.PerGB(); ok {
			entry.JoulesPerGB, _ = decimal(with)
			entry.JoulesPerGBWithout = estimated(without)
		}
		if tariff.price != nil {
			entry.Cost = estimated(ledger.Tariff{PerKWh: *tariff.price}.Cost(s.Net))
		}
		if tariff.grams != nil {
			entry.KilogramsCO2 = estimated(ledger.Tariff{GramsPerKWh: *tariff.grams / gramsPerKilogram}.Grams(s.Net))
		}
		out = append(out, entry)
	}
	return out
}

const gramsPerKilogram = 1000

func basisOf(modelled bool) v1alpha1.Basis {
	if modelled {
		return v1alpha1.BasisModelled
	}
	return v1alpha1.BasisMeasured
}

// periodTotal is the period of all time.
const periodTotal = "Total"

func periodOf(month ledger.Month) string {
	if month == ledger.AllTime {
		return periodTotal
	}
	return month.String()
}

func tariffStatus(policy *v1alpha1.EnergyPolicy, tariff knownTariff) *v1alpha1.TariffStatus {
	var out v1alpha1.TariffStatus
	if tariff.price != nil {
		out.PricePerKWh, _ = decimal(*tariff.price)
		out.Currency = policy.Spec.Tariff.Currency
	}
	if tariff.grams != nil {
		out.GramsCO2PerKWh, _ = decimal(*tariff.grams)
	}
	if out == (v1alpha1.TariffStatus{}) {
		return nil
	}
	return &out
}

const (
	// mostTrials and the lengths below are what the API takes.
	mostTrials       = 64
	mostTrialClass   = 256
	mostTrialMessage = 512
)

// orderedStandings are the first that the API has room for: those on trial first, then those
// decided last.
func orderedStandings(standings []proof.Standing) []proof.Standing {
	ordered := slices.Clone(standings)
	place := func(s proof.Standing) int {
		if s.Stance == model.StanceOnTrial {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(ordered, func(a, b proof.Standing) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), b.Decided.Compare(a.Decided))
	})
	return ordered[:min(len(ordered), mostTrials)]
}

// leverTrials tell how levers stand.
func leverTrials(standings []proof.Standing) []v1alpha1.LeverTrial {
	var out []v1alpha1.LeverTrial
	ordered := orderedStandings(standings)
	for i := range ordered {
		s := &ordered[i]
		trial := v1alpha1.LeverTrial{
			Lever: v1alpha1.Lever(s.Lever), Class: cut(classWords(s), mostTrialClass), Stance: v1alpha1.Stance(s.Stance),
			Units: int32(s.Units), Pairs: int32(s.Pairs), PlannedPairs: int32(s.Planned), Message: cut(s.Message, mostTrialMessage),
		}
		if s.Known {
			trial.SavedPercent = estimated(savedPercent(s))
		}
		if !s.Until.IsZero() {
			until := metav1.NewTime(s.Until)
			trial.Until = &until
		}
		out = append(out, trial)
	}
	return out
}

// classWords names what a standing is about.
func classWords(s *proof.Standing) string {
	if s.Unit != "" {
		return "only " + s.Unit
	}
	return s.Class.String()
}

// savedPercent of the energy for the same work. Its low end is the effect's high one.
func savedPercent(s *proof.Standing) ledger.Range {
	saved := func(log float64) float64 { return -100 * math.Expm1(log) }
	return ledger.Range{Value: saved(s.Log), Low: saved(s.High), High: saved(s.Low)}
}

// estimated is an estimate, or nil for what no number tells.
func estimated(r ledger.Range) *v1alpha1.Estimate {
	if e, ok := estimate(r); ok {
		return &e
	}
	return nil
}

func estimate(r ledger.Range) (v1alpha1.Estimate, bool) {
	value, ok1 := decimal(r.Value)
	low, ok2 := decimal(r.Low)
	high, ok3 := decimal(r.High)
	return v1alpha1.Estimate{Value: value, Low: low, High: high}, ok1 && ok2 && ok3
}

// decimal rounds a number to three digits: more say nothing, and would change the status
// each time. It returns false for what is no number, or too large for one.
func decimal(x float64) (v1alpha1.Decimal, bool) {
	const least, most, digits = 1e-9, 1e15, 3
	size := math.Abs(x)
	switch {
	case !(size < most):
		return "", false
	case size < least:
		return "0", true
	}
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(x, 'e', digits-1, 64), 64)
	if err != nil {
		return "", false
	}
	return v1alpha1.Decimal(strconv.FormatFloat(rounded, 'f', -1, 64)), true
}
