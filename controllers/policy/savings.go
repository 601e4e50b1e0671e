package policy

import (
	"cmp"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/statuses"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/proofs"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// savedDigits are the significant digits of what was measured to be saved.
const savedDigits = 3

// SavingsSources are where a policy's status has its savings from.
type SavingsSources struct {
	Memory *proofs.Store
	// Conditions of a policy's memory and evidence.
	Conditions func(*v1alpha1.EnergyPolicy) []metav1.Condition
}

// savingsView is what is remembered of one policy, as its status tells it.
type savingsView struct {
	statements []ledger.Statement
	standings  []proof.Standing
	// acts tells of each of the standings whether the lever acts on a unit of it.
	acts   []bool
	proven []v1alpha1.Saving
}

// write gives the status its savings. What is not known yet stays as it was.
func (s *SavingsSources) write(status *v1alpha1.EnergyPolicyStatus, policy *v1alpha1.EnergyPolicy, tally policyTally, now time.Time) {
	if s == nil {
		return
	}
	conditions := s.Conditions(policy)
	var view savingsView
	known := s.Memory.View(policy.Name, func(p *proof.Proofs, l *ledger.Ledger) {
		view = viewSavings(p, l, tally, now)
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

// viewSavings reads what is remembered.
func viewSavings(p *proof.Proofs, l *ledger.Ledger, tally policyTally, now time.Time) savingsView {
	month := ledger.MonthOf(now)
	view := savingsView{standings: p.Standings()}
	view.proven = provenNow(p, provenBy{tally.metered, tally.acting, now})
	view.acts = actingStandings(p, view.standings, tally.acting)
	for _, modelled := range []bool{false, true} {
		for _, m := range []ledger.Month{month, month - 1, ledger.AllTime} {
			if statement := l.Statement(m, modelled, ledger.Confidence); isBooked(&statement) {
				view.statements = append(view.statements, statement)
			}
		}
	}
	return view
}

func isBooked(s *ledger.Statement) bool { return len(s.Lines) > 0 || s.Drawn > 0 }

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
			entry.Cost = estimated(ledger.Tariff{PerKWh: *price}.Cost(s.Saved))
		}
		if grams != nil {
			entry.KilogramsCO2 = estimated(ledger.Tariff{GramsPerKWh: *grams / gramsPerKilogram}.Grams(s.Saved))
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
			Lever: s.Lever, Class: statuses.Cut(classWords(s), mostTrialClass), Stance: v1alpha1.Stance(s.Stance),
			Units: int32(s.Units), Pairs: int32(s.Pairs), PlannedPairs: int32(s.Planned), Message: statuses.Cut(s.Message, mostTrialMessage),
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
	if e, ok := statuses.EstimateOf(r, savedDigits); ok {
		return &e
	}
	return nil
}
