package explain

import (
	"fmt"

	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/figures"
	"github.com/joulevirt/joulevirt/internal/cli/savings"
	"github.com/joulevirt/joulevirt/internal/cli/show"
	"github.com/joulevirt/joulevirt/internal/cli/top"
)

// Energy is what is known of a node's energy, and a VM's, that the objects of both do not tell.
type Energy struct {
	// Now is what is drawn, saved and could be saved now. Nil: it is not known, as Unknown
	// says.
	Now *figures.Detail
	// Unknown says why Now is not known, and what to do. Empty: a gap does.
	Unknown string
	// Booked is what was saved on the node since the policy's ledger was begun.
	Booked []savings.Unit
}

// Drawn is what a node or a VM draws now.
type Drawn struct {
	// Of is the node or the VM, as TYPE/NAME.
	Of        string `json:"of"`
	top.Power `json:",inline"`
	// Means says how far to believe it.
	Means string `json:"means"`
}

// The words for figures of power.
const (
	meansMeasured = "by a meter"
	meansModelled = "by a model: it proves nothing"
	meansShare    = "its share of the node's dynamic power, by CPU time and wake-ups: it ranks VMs, and proves nothing"
	meansExported = "its share of the power of the node's CPU packages, by CPU time: it ranks VMs, and proves nothing"
)

// addEnergy tells what a node, and a VM on it, draw and save. vm is the VM as TYPE/NAME, empty
// for none.
func (e *Explanation) addEnergy(energy Energy, node string, report *v1alpha1.NodeReport, vm string) {
	now := figures.Detail{}
	if energy.Now != nil {
		now = *energy.Now
	}
	e.NodeProven, e.NodePotential, e.NodeBooked = now.Proven, now.Potential, energy.Booked
	if e.NodePotential == nil {
		e.NodePotential = e.toldOf(node)
	}
	for _, share := range []struct {
		watts         *float64
		source, means string
	}{{now.VMWatts, "Agent", meansShare}, {now.ExportedWatts, "Exporter", meansExported}} {
		if share.watts != nil {
			e.Drawn = append(e.Drawn, Drawn{Of: vm, Power: top.Power{Watts: share.watts, Source: share.source, Basis: v1alpha1.BasisModelled}, Means: share.means})
		}
	}
	if power := powerOf(report, now.Node, e); power.Watts != nil {
		means := meansMeasured
		if power.Basis != v1alpha1.BasisMeasured {
			means = meansModelled
		}
		e.Drawn = append(e.Drawn, Drawn{Of: "node/" + node, Power: power, Means: means})
	}
	e.sayUnknown(energy, vm != "")
}

// toldOf is what the policy's status tells that levers could save on a node: it names the
// nodes with the most. Nil: not this one.
func (e *Explanation) toldOf(node string) []figures.LeverWatts {
	const milliwatts = 1000
	var told []figures.LeverWatts
	for i := range e.nodePotentials {
		if of := &e.nodePotentials[i]; of.Name == node {
			for _, s := range of.Levers {
				told = append(told, figures.LeverWatts{
					Lever: s.Lever, Watts: float64(s.Milliwatts) / milliwatts,
					LowWatts: ptr.To(float64(s.LowMilliwatts) / milliwatts), HighWatts: ptr.To(float64(s.HighMilliwatts) / milliwatts),
				})
			}
		}
	}
	return told
}

func powerOf(report *v1alpha1.NodeReport, fast figures.Node, e *Explanation) top.Power {
	if report == nil {
		report = &v1alpha1.NodeReport{}
	}
	return top.PowerOf(&report.Status, fast, e.now)
}

// sayUnknown says which figures are not known, and why.
func (e *Explanation) sayUnknown(energy Energy, ofVM bool) {
	switch {
	case energy.Now == nil && energy.Unknown != "":
		e.input("what levers save now", "not known: "+energy.Unknown)
	case energy.Now == nil:
	default:
		if ofVM && energy.Now.VMWatts == nil && energy.Now.ExportedWatts == nil {
			e.input("power of the VM", "not known: its agent tells with --per-vm-metrics, while the node's power is known")
		}
		if e.NodePotential == nil {
			e.input("what levers could save on the node", "not known: no VM of the node was seen for long enough, or none may be acted on")
		}
	}
}

// energyTables show what is drawn and saved, of which the figures of levers are of the node:
// only nodes are judged.
func (e *Explanation) energyTables() []show.Table {
	drawn := show.Table{Heading: "Power now:", Columns: show.Columns("OF", "WATTS", "BASIS", "SOURCE", "AGE", "MEANS")}
	for i := range e.Drawn {
		d := &e.Drawn[i]
		drawn.Rows = append(drawn.Rows, []string{d.Of, show.Number(d.Watts), string(d.Basis), d.Source, top.Age(d.AgeSeconds), d.Means})
	}
	proven := show.Table{Heading: "What levers in force save on the node now (measured by trials):", Columns: show.Columns("LEVER", "WATTS", "INTERVAL")}
	for i := range e.NodeProven {
		p := &e.NodeProven[i]
		proven.Rows = append(proven.Rows, []string{string(p.Lever), show.Number(&p.Watts), interval(p)})
	}
	booked := show.Table{Heading: "Saved on the node since the ledger was begun:", Columns: show.Columns("LEVER", "BASIS", "KWH", "INTERVAL")}
	for i := range e.NodeBooked {
		b := &e.NodeBooked[i]
		booked.Rows = append(booked.Rows, []string{
			string(b.Lever), string(b.Basis), show.Number(&b.KilowattHours), show.Number(&b.LowKilowattHours) + " to " + show.Number(&b.HighKilowattHours),
		})
	}
	return []show.Table{drawn, proven, booked}
}

// foretoldOnNode is what levers could save on the node, those in force too: against no lever
// at all.
func (e *Explanation) foretoldOnNode() show.Table {
	table := show.Table{Heading: "What levers could save on the node, against none (modelled):", Columns: show.Columns("LEVER", "WATTS", "INTERVAL", "MEANS")}
	for i := range e.NodePotential {
		p := &e.NodePotential[i]
		means := "it would save"
		switch {
		case p.Watts == 0:
			means = "nothing at its present load"
		case p.Watts < 0:
			means = "it would cost energy"
		case p.LowWatts != nil && *p.LowWatts < 0:
			means = "it would save, or cost: the interval has both"
		}
		table.Rows = append(table.Rows, []string{string(p.Lever), show.Number(&p.Watts), interval(p), means})
	}
	return table
}

func interval(of *figures.LeverWatts) string {
	if of.LowWatts == nil || of.HighWatts == nil {
		return show.None
	}
	return fmt.Sprintf("%s to %s", show.Number(of.LowWatts), show.Number(of.HighWatts))
}
