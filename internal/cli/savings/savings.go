// Package savings shows what policies saved, measured and modelled apart. It is a pure function
// of their statuses.
package savings

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/show"
)

// hoursPerMonth is those of a year by twelve.
const hoursPerMonth = 365.25 * 24 / 12

// Report is a view of what policies saved.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	Items           []Policy   `json:"items"`
	Gaps            []show.Gap `json:"gaps,omitempty"`
}

// Policy is what one policy saved.
type Policy struct {
	Name string `json:"name"`
	// Booked is what was saved in periods, by basis, net of what the product itself drew.
	Booked []v1alpha1.Savings `json:"booked"`
	// Tariff of cost and emissions, or nil.
	Tariff *v1alpha1.Tariff `json:"tariff,omitempty"`
	// Proven is what levers save of what the nodes draw now, and Potential what they could.
	Proven    []v1alpha1.Saving `json:"proven"`
	Potential []v1alpha1.Saving `json:"potential"`
}

// Of shows what some policies saved, all if none is named.
func Of(f *facts.Facts, names ...string) *Report {
	out := &Report{TypeMeta: show.Kind("SavingsReport"), Items: []Policy{}, Gaps: f.Gaps()}
	for i := range f.Policies {
		if len(names) == 0 || slices.Contains(names, f.Policies[i].Name) {
			out.Items = append(out.Items, OfPolicy(&f.Policies[i]))
		}
	}
	slices.SortFunc(out.Items, func(x, y Policy) int { return strings.Compare(x.Name, y.Name) })
	return out
}

// OfPolicy returns what one policy saved.
func OfPolicy(p *v1alpha1.EnergyPolicy) Policy {
	item := Policy{
		Name: p.Name, Booked: slices.Clone(p.Status.Savings), Tariff: p.Spec.Tariff,
		Proven: append([]v1alpha1.Saving{}, p.Status.Proven...), Potential: append([]v1alpha1.Saving{}, p.Status.Potential...),
	}
	// Months first, the newest of them first, and the total last.
	slices.SortStableFunc(item.Booked, func(x, y v1alpha1.Savings) int {
		return cmp.Or(strings.Compare(string(x.Basis), string(y.Basis)), comparePeriods(x.Period, y.Period))
	})
	return item
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

// Tables show what was booked, measured and modelled apart, and the savings of now.
func (r *Report) Tables() []show.Table {
	return []show.Table{
		r.booked("Booked, measured (net of what the product itself drew), with intervals of 95 %:", v1alpha1.BasisMeasured),
		r.booked("Booked, modelled (without a meter; it proves nothing):", v1alpha1.BasisModelled),
		r.rates("Proven, of what the nodes draw now:", v1alpha1.BasisMeasured, func(p *Policy) []v1alpha1.Saving { return p.Proven }),
		r.rates("Could be saved (predicted):", v1alpha1.BasisModelled, func(p *Policy) []v1alpha1.Saving { return p.Potential }),
	}
}

func (r *Report) booked(heading string, basis v1alpha1.Basis) show.Table {
	table := show.Table{Heading: heading, Columns: show.Columns("POLICY", "PERIOD", "LEVER", "KWH", "INTERVAL", "COST", "KG-CO2E", "J/GB", "WITHOUT")}
	for i := range r.Items {
		p := &r.Items[i]
		for _, s := range p.Booked {
			if s.Basis != basis {
				continue
			}
			without := show.None
			if s.JoulesPerGBWithout != nil {
				without = string(s.JoulesPerGBWithout.Value)
			}
			table.Rows = append(table.Rows, []string{
				p.Name, s.Period, "all", string(s.KilowattHours.Value), interval(&s.KilowattHours), cost(s.Cost, p.Tariff), estimate(s.KilogramsCO2),
				show.Or(string(s.JoulesPerGB)), without,
			})
			for _, lever := range s.Levers {
				table.Rows = append(table.Rows, []string{
					p.Name, s.Period, string(lever.Lever), string(lever.KilowattHours.Value), interval(&lever.KilowattHours), "", "", "", "",
				})
			}
		}
	}
	return table
}

func interval(e *v1alpha1.Estimate) string { return string(e.Low) + " to " + string(e.High) }

func estimate(e *v1alpha1.Estimate) string {
	if e == nil {
		return show.None
	}
	return string(e.Value) + " (" + interval(e) + ")"
}

func cost(e *v1alpha1.Estimate, tariff *v1alpha1.Tariff) string {
	text := estimate(e)
	if e != nil && tariff != nil {
		text = strings.TrimSpace(text + " " + tariff.Currency)
	}
	return text
}

func (r *Report) rates(heading string, basis v1alpha1.Basis, of func(*Policy) []v1alpha1.Saving) show.Table {
	table := show.Table{Heading: heading, Columns: show.Columns("POLICY", "LEVER", "BASIS", "WATTS", "INTERVAL", "KWH/MONTH", "INTERVAL")}
	month := func(watts v1alpha1.Decimal) string {
		kilowattHours := watts.Float() / 1000 * hoursPerMonth
		return show.Number(&kilowattHours)
	}
	for i := range r.Items {
		for _, s := range of(&r.Items[i]) {
			table.Rows = append(table.Rows, []string{
				r.Items[i].Name, string(s.Lever), string(basis), string(s.Watts.Value), interval(&s.Watts),
				month(s.Watts.Value), month(s.Watts.Low) + " to " + month(s.Watts.High),
			})
		}
	}
	return table
}
