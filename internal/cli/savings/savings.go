// Package savings shows what policies saved, measured and modelled apart. It is a pure function
// of their statuses.
package savings

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/show"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
)

// defaultConfidencePercent is the API's own, for policies stored before it.
const defaultConfidencePercent = 95

// hoursOfMonth is a year's by twelve.
const hoursOfMonth = 365.25 * 24 / 12

// Report is a view of what policies saved.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	Items           []Policy   `json:"items"`
	Gaps            []show.Gap `json:"gaps,omitempty"`
}

// Policy is what one policy saved.
type Policy struct {
	Name string `json:"name"`
	// ConfidencePercent of all intervals of Booked.
	ConfidencePercent int32 `json:"confidencePercent"`
	// Booked is what was saved in periods, by basis, net of what the product itself drew.
	Booked []v1alpha1.Savings `json:"booked"`
	// Tariff that cost and emissions are told by. Nil: there is none.
	Tariff *v1alpha1.TariffStatus `json:"tariff,omitempty"`
	// Units are what each lever saved on each node, and by each group, if that was asked for.
	Units []Unit `json:"units,omitempty"`
	// Rates are what levers save of what the nodes draw now, and could save.
	Rates []Rate `json:"rates"`
}

// Unit is what a lever saved on one unit since the ledger was begun.
type Unit struct {
	// Unit is a node, or a group as NAMESPACE/NAME of its profile.
	Unit  string         `json:"unit"`
	Lever v1alpha1.Lever `json:"lever"`
	Basis v1alpha1.Basis `json:"basis"`
	// KilowattHours with the ends of the interval.
	KilowattHours     float64 `json:"kilowattHours"`
	LowKilowattHours  float64 `json:"lowKilowattHours"`
	HighKilowattHours float64 `json:"highKilowattHours"`
}

// Rate is a saving as it goes on.
type Rate struct {
	Lever v1alpha1.Lever `json:"lever"`
	// Basis is Measured for what was proven, Modelled for what is foretold.
	Basis v1alpha1.Basis `json:"basis"`
	// Potential is true for what could be saved and is not.
	Potential bool `json:"potential"`
	// Watts with the ends of the interval.
	Watts     float64 `json:"watts"`
	LowWatts  float64 `json:"lowWatts"`
	HighWatts float64 `json:"highWatts"`
	// KilowattHoursPerMonth if it goes on so, with the ends of the interval.
	KilowattHoursPerMonth     float64 `json:"kilowattHoursPerMonth"`
	LowKilowattHoursPerMonth  float64 `json:"lowKilowattHoursPerMonth"`
	HighKilowattHoursPerMonth float64 `json:"highKilowattHoursPerMonth"`
}

// Of shows what some policies saved, all without a name.
func Of(f *facts.Facts, names ...string) *Report {
	out := &Report{TypeMeta: show.Kind("SavingsReport"), Items: []Policy{}, Gaps: f.Gaps()}
	for i := range f.Policies {
		p := &f.Policies[i]
		if len(names) > 0 && !slices.Contains(names, p.Name) {
			continue
		}
		item := Policy{Name: p.Name, ConfidencePercent: p.Spec.Verification.ConfidencePercent, Booked: slices.Clone(p.Status.Savings), Tariff: p.Status.Tariff, Rates: []Rate{}}
		// Months first, the newest of them first, and the total last.
		slices.SortStableFunc(item.Booked, func(x, y v1alpha1.Savings) int {
			if order := strings.Compare(string(x.Basis), string(y.Basis)); order != 0 {
				return order
			}
			return comparePeriods(x.Period, y.Period)
		})
		for _, s := range p.Status.Proven {
			item.Rates = append(item.Rates, rate(s, false))
		}
		for _, s := range p.Status.Potential {
			item.Rates = append(item.Rates, rate(s, true))
		}
		at := slices.IndexFunc(f.Ledgers, func(l v1alpha1.EnergyLedger) bool { return l.Name == p.Name })
		if at >= 0 && len(f.Ledgers[at].Status.Ledger) > 0 {
			var err error
			if item.Units, err = units(f.Ledgers[at].Status.Ledger, p.Spec.Verification.ConfidencePercent); err != nil {
				out.Gaps = append(out.Gaps, show.Gap{Of: "EnergyLedger " + p.Name, Message: err.Error()})
			}
		}
		out.Items = append(out.Items, item)
	}
	slices.SortFunc(out.Items, func(x, y Policy) int { return strings.Compare(x.Name, y.Name) })
	return out
}

func comparePeriods(x, y string) int {
	const total = "Total"
	switch {
	case x == y:
		return 0
	case x == total:
		return 1
	case y == total:
		return -1
	default:
		return strings.Compare(y, x)
	}
}

// units reads what a ledger tells of nodes and groups.
func units(stored []byte, confidencePercent int32) ([]Unit, error) {
	booked, err := ledger.Load(stored)
	if err != nil {
		return nil, fmt.Errorf("what is stored was not read: %w: use kubectl joulevirt of the manager's version", err)
	}
	return OfUnits(booked.Units(float64(cmp.Or(confidencePercent, defaultConfidencePercent)) / 100)), nil
}

// OfUnits tells what a ledger does in kilowatt hours.
func OfUnits(saved []ledger.UnitSaving) []Unit {
	var out []Unit
	for _, of := range saved {
		kWh := of.Saved.KWh()
		out = append(out, Unit{
			Unit: of.Unit, Lever: v1alpha1.Lever(of.Lever), Basis: basisOf(of.Modelled),
			KilowattHours: kWh.Value, LowKilowattHours: kWh.Low, HighKilowattHours: kWh.High,
		})
	}
	return out
}

// OnNode reads what a ledger tells of one node. confidencePercent is that of the intervals, 0
// for the API's default.
func OnNode(of *v1alpha1.EnergyLedger, confidencePercent int32, node string) ([]Unit, error) {
	if len(of.Status.Ledger) == 0 {
		return nil, nil
	}
	all, err := units(of.Status.Ledger, confidencePercent)
	return slices.DeleteFunc(all, func(u Unit) bool { return u.Unit != node }), err
}

func basisOf(modelled bool) v1alpha1.Basis {
	if modelled {
		return v1alpha1.BasisModelled
	}
	return v1alpha1.BasisMeasured
}

func rate(s v1alpha1.Saving, potential bool) Rate {
	month := func(milliwatts int64) float64 { return float64(milliwatts) / 1e6 * hoursOfMonth }
	return Rate{
		Lever: s.Lever, Basis: basisOf(s.Modelled), Potential: potential,
		Watts: float64(s.Milliwatts) / 1000, LowWatts: float64(s.LowMilliwatts) / 1000, HighWatts: float64(s.HighMilliwatts) / 1000,
		KilowattHoursPerMonth: month(s.Milliwatts), LowKilowattHoursPerMonth: month(s.LowMilliwatts), HighKilowattHoursPerMonth: month(s.HighMilliwatts),
	}
}

// Tables show what was booked, measured and modelled in tables of their own, and what goes on.
func (r *Report) Tables() []show.Table {
	return []show.Table{
		r.booked("Booked, measured (net of what the product itself drew):", v1alpha1.BasisMeasured),
		r.booked("Booked, modelled (no meter judged it; it proves nothing):", v1alpha1.BasisModelled),
		r.units(),
		r.rates("Proven, of what the nodes draw now:", false),
		r.rates("Could be saved (foretold):", true),
	}
}

func (r *Report) booked(heading string, basis v1alpha1.Basis) show.Table {
	table := show.Table{Heading: heading, Columns: show.Columns("POLICY", "PERIOD", "LEVER", "KWH", "INTERVAL", "COST", "KG-CO2E", "J/GB", "WITHOUT", "+CONFIDENCE")}
	for i := range r.Items {
		p := &r.Items[i]
		confidence := fmt.Sprintf("%d %%", p.ConfidencePercent)
		for _, s := range p.Booked {
			if s.Basis != basis {
				continue
			}
			without := show.None
			if s.JoulesPerGBWithout != nil {
				without = string(s.JoulesPerGBWithout.Value)
			}
			table.Rows = append(table.Rows, []string{
				p.Name, s.Period, "all, net", string(s.KilowattHours.Value), interval(&s.KilowattHours), cost(s.Cost, p.Tariff), estimate(s.KilogramsCO2),
				show.Or(string(s.JoulesPerGB)), without, confidence,
			})
			for _, lever := range s.Levers {
				table.Rows = append(table.Rows, []string{
					p.Name, s.Period, string(lever.Lever), string(lever.KilowattHours.Value), interval(&lever.KilowattHours), "", "", "", "", confidence,
				})
			}
			if s.OwnKilowattHours != nil {
				own := negative(s.OwnKilowattHours)
				table.Rows = append(table.Rows, []string{p.Name, s.Period, "own use", string(own.Value), interval(own), "", "", "", "", confidence})
			}
		}
	}
	return table
}

// units are told of in total: intervals of nodes have parts in common, and do not add up.
func (r *Report) units() show.Table {
	table := show.Table{
		Heading: "In total, on each node and by each group:", WideOnly: true,
		Columns: show.Columns("POLICY", "NODE", "LEVER", "BASIS", "KWH", "INTERVAL", "CONFIDENCE"),
	}
	for i := range r.Items {
		p := &r.Items[i]
		for j := range p.Units {
			of := &p.Units[j]
			table.Rows = append(table.Rows, []string{
				p.Name, of.Unit, string(of.Lever), string(of.Basis), show.Number(&of.KilowattHours),
				show.Number(&of.LowKilowattHours) + " to " + show.Number(&of.HighKilowattHours), fmt.Sprintf("%d %%", p.ConfidencePercent),
			})
		}
	}
	return table
}

// negative is what something costs as a saving: the ends of its interval change places.
func negative(e *v1alpha1.Estimate) *v1alpha1.Estimate {
	of := func(d v1alpha1.Decimal) v1alpha1.Decimal {
		if positive, cut := strings.CutPrefix(string(d), "-"); cut || strings.Trim(positive, "0.") == "" {
			return v1alpha1.Decimal(positive)
		}
		return "-" + d
	}
	return &v1alpha1.Estimate{Value: of(e.Value), Low: of(e.High), High: of(e.Low)}
}

func interval(e *v1alpha1.Estimate) string { return string(e.Low) + " to " + string(e.High) }

func estimate(e *v1alpha1.Estimate) string {
	if e == nil {
		return show.None
	}
	return string(e.Value) + " (" + interval(e) + ")"
}

func cost(e *v1alpha1.Estimate, tariff *v1alpha1.TariffStatus) string {
	text := estimate(e)
	if e != nil && tariff != nil {
		text = strings.TrimSpace(text + " " + tariff.Currency)
	}
	return text
}

func (r *Report) rates(heading string, potential bool) show.Table {
	table := show.Table{Heading: heading, Columns: show.Columns("POLICY", "LEVER", "BASIS", "WATTS", "INTERVAL", "KWH/MONTH", "INTERVAL")}
	for i := range r.Items {
		for _, rate := range r.Items[i].Rates {
			if rate.Potential != potential {
				continue
			}
			table.Rows = append(table.Rows, []string{
				r.Items[i].Name, string(rate.Lever), string(rate.Basis), show.Number(&rate.Watts), show.Number(&rate.LowWatts) + " to " + show.Number(&rate.HighWatts),
				show.Number(&rate.KilowattHoursPerMonth), show.Number(&rate.LowKilowattHoursPerMonth) + " to " + show.Number(&rate.HighKilowattHoursPerMonth),
			})
		}
	}
	return table
}

// Names are those of the policies.
func (r *Report) Names() []string {
	var names []string
	for i := range r.Items {
		names = append(names, "energypolicy.joulevirt.io/"+r.Items[i].Name)
	}
	return names
}
