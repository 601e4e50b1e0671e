package policy

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/statuses"
	trialing "github.com/joulevirt/joulevirt/controllers/trials"
	"github.com/joulevirt/joulevirt/internal/ledger"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/trials"
)

// savedDigits are the significant digits of what was measured to be saved.
const savedDigits = 3

// SavingsSources are where a policy's status has its savings from.
type SavingsSources struct {
	Memory *trialing.Memory
	// Conditions of a policy's memory and evidence.
	Conditions func(*v1alpha1.EnergyPolicy) []metav1.Condition
}

// savingsView is what is remembered of one policy, as its status tells it.
type savingsView struct {
	statements []ledger.Statement
	standings  []standing
	proven     []v1alpha1.Saving
}

// write gives the status its savings. What is not known yet stays as it was.
func (s *SavingsSources) write(status *v1alpha1.EnergyPolicyStatus, policy *v1alpha1.EnergyPolicy, tally policyTally, now time.Time) {
	if s == nil {
		return
	}
	conditions := s.Conditions(policy)
	var view savingsView
	known := s.Memory.View(policy.Name, func(t *trials.Trials, l *ledger.Ledger) {
		view.standings = standingsOf(t, tally.acting)
		month := ledger.MonthOf(now)
		view.statements = statementsOf(l, month, month-1, ledger.AllTime)
		view.proven = provenNow(view.standings, tally, func(unit string, lever v1alpha1.Lever) bool {
			return isOn(t, unit, lever, trialing.HoldBack(policy), now)
		})
	})
	if known {
		status.Savings = savings(view.statements, policy.Spec.Tariff)
		status.Trials = leverTrials(view.standings)
		status.Proven = view.proven
		conditions = append(conditions, savingsProven(policy, view, tally))
	} else {
		status.Savings, status.Trials, status.Proven = policy.Status.Savings, policy.Status.Trials, policy.Status.Proven
	}
	statuses.SetConditions(&status.Conditions, conditions, policy.Generation, now)
}

// isOn reports whether a lever that was adopted is used on a unit now, and not held back. The unit's
// agent may switch some seconds apart from this clock.
func isOn(t *trials.Trials, unit string, lever v1alpha1.Lever, holdBack float64, now time.Time) bool {
	proofs, _ := t.Of(unit, holdBack, now)
	return slices.ContainsFunc(proofs, func(p model.Proof) bool {
		return p.Lever == lever && p.Use && (p.Schedule == nil || p.Schedule.At(now).On)
	})
}

// statementsOf months in which something is booked, measured and modelled apart.
func statementsOf(l *ledger.Ledger, months ...ledger.Month) []ledger.Statement {
	var out []ledger.Statement
	for _, modelled := range []bool{false, true} {
		for _, month := range months {
			if statement := l.Statement(month, modelled); !statement.IsEmpty() {
				out = append(out, statement)
			}
		}
	}
	return out
}

// savings as the API tells them.
func savings(statements []ledger.Statement, tariff *v1alpha1.Tariff) []v1alpha1.Savings {
	price, grams := tariffOf(tariff)
	var out []v1alpha1.Savings
	for i := range statements {
		s := &statements[i]
		saved, ok := statuses.EstimateOf(s.Saved.KWh(), savedDigits)
		if !ok {
			continue
		}
		entry := v1alpha1.Savings{Basis: basisOf(s.Modelled), Period: periodOf(s.Month), KilowattHours: saved}
		for _, line := range s.Lines {
			if saved, ok := statuses.EstimateOf(line.Saved.KWh(), savedDigits); ok {
				entry.Levers = append(entry.Levers, v1alpha1.LeverSavings{Lever: line.Lever, KilowattHours: saved})
			}
		}
		if with, without, ok := s.PerGB(); ok {
			entry.JoulesPerGB, _ = statuses.Decimal(with, savedDigits)
			entry.JoulesPerGBWithout = estimated(without)
		}
		if price != nil {
			entry.Cost = estimated(s.Saved.KWh().Times(*price))
		}
		if grams != nil {
			entry.KilogramsCO2 = estimated(s.Saved.KWh().Times(*grams / gramsPerKilogram))
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

// tariffOf returns the price and the grams of CO2 of a kilowatt-hour, each nil when it is not set.
func tariffOf(tariff *v1alpha1.Tariff) (price, grams *float64) {
	if tariff == nil {
		return nil, nil
	}
	figure := func(q *resource.Quantity) *float64 {
		if q == nil {
			return nil
		}
		return ptr.To(q.AsApproximateFloat64())
	}
	return figure(tariff.PricePerKWh), figure(tariff.GramsCO2PerKWh)
}

const (
	// mostTrials and the lengths below are what the API takes.
	mostTrials       = 64
	mostTrialClass   = 256
	mostTrialMessage = 512
)

// orderedStandings are the first that the API has room for: those on trial first, then those
// decided last.
func orderedStandings(standings []standing) []standing {
	ordered := slices.Clone(standings)
	place := func(s standing) int {
		if s.stance == model.StanceOnTrial {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(ordered, func(a, b standing) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), b.Decided.Compare(a.Decided))
	})
	return ordered[:min(len(ordered), mostTrials)]
}

// leverTrials tell how levers stand.
func leverTrials(standings []standing) []v1alpha1.LeverTrial {
	var out []v1alpha1.LeverTrial
	ordered := orderedStandings(standings)
	for i := range ordered {
		s := &ordered[i]
		trial := v1alpha1.LeverTrial{
			Lever: s.Lever, Class: statuses.Cut(s.Set(), mostTrialClass), Stance: v1alpha1.Stance(s.stance),
			Units: int32(len(s.units)), Pairs: int32(s.pairs()), PlannedPairs: int32(s.Planned()), Message: statuses.Cut(s.Message, mostTrialMessage),
		}
		if s.effect != nil {
			trial.SavedPercent = estimated(s.effect.PercentLess())
		}
		if !s.Until.IsZero() {
			until := metav1.NewTime(s.Until)
			trial.Until = &until
		}
		out = append(out, trial)
	}
	return out
}

// estimated is an estimate, or nil for what no number tells.
func estimated(r ledger.Range) *v1alpha1.Estimate {
	if e, ok := statuses.EstimateOf(r, savedDigits); ok {
		return &e
	}
	return nil
}
