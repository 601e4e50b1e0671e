package loop

import (
	"fmt"
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/blocks"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// Outcome is what came of a loop. All of it is simulated. Energies are joules of packages.
type Outcome struct {
	Events []Event
	// Without is what twins without levers drew in all hours and in those that are judged,
	// Saved what the fleet drew less.
	Without, Saved, WithoutJudged, SavedJudged float64
	// OracleSaved is what the oracle saves in the hours that are judged, and OracleAll what
	// it would in all of them, if each node saved as large a share all the time.
	OracleSaved, OracleAll float64
	// Ledger is what was booked, and Truth what the same blocks truly saved.
	Ledger ledger.Range
	Truth  float64
	// Lines are the same by lever.
	Lines []Line
	// Looked is how many VMs were looked at, each 5 minutes, and Broken on how many levers
	// cost service.
	Looked, Broken int
	// Withdrawals by the manager's guard.
	Withdrawals Withdrawals
	Nodes       []Node
	Groups      []Group
	// Standings at the end.
	Standings []proof.Standing
}

// Line is what was booked of one lever, and the truth.
type Line struct {
	Lever model.Lever
	Saved ledger.Range
	Truth float64
	// Blocks that were booked with the lever on, and Excluded ones of all.
	Blocks, Excluded int
	// Acted is for how many seconds the lever acted, by what became of them: of what is not
	// booked the ledger claims nothing.
	Acted Fates
}

// Node is what came of one node, in the hours that are judged.
type Node struct {
	Name, Kind string
	// Odd nodes are harmed by a lever that saves on others of the kind.
	Odd bool
	// Effects of the node's own levers, in their order, beside the others: logarithms. Above 0 one harms.
	Effects [2]float64
	Stances [2]model.Stance
	// Saved share of what is drawn, and Best that the oracle saves.
	Saved, Best float64
}

// Group is what came of one group, in the hours that are judged.
type Group struct {
	Name, Kind string
	// Effect of uneven shares on all its nodes, beside other levers: a logarithm.
	Effect float64
	Stance model.Stance
}

// outcome of the loop so far, but for the oracle's.
func (l *loop) outcome() (Outcome, error) {
	o := Outcome{Events: l.events}
	end := l.now
	judged := end.Add(-time.Duration(l.Judged) * time.Hour)
	for _, m := range l.nodes {
		n := m.recorded()
		all, late := n.truth.drawn(start(), end), n.truth.drawn(judged, end)
		o.Without += all[withoutAny]
		o.Saved += all[withoutAny] - all[actual]
		o.WithoutJudged += late[withoutAny]
		o.SavedJudged += late[withoutAny] - late[actual]
		o.Looked, o.Broken = o.Looked+n.truth.looked, o.Broken+n.truth.broken
		for i := range n.closed {
			if n.closed[i].Guarded {
				o.Withdrawals.Blocks++
			}
		}
		if n, is := m.(*node); is {
			o.Withdrawals.add(&n.guarded.count)
		}
	}
	l.memory.View(policyOf().Name, func(p *proof.Proofs, _ *ledger.Ledger) { o.Standings = p.Standings() })
	return o, l.booked(&o)
}

// booked compares the ledger with the truth of the blocks that are booked in it.
func (l *loop) booked(o *Outcome) error {
	statement, stored := l.ledger()
	o.Ledger = statement.Gross
	probe, err := ledger.Load(stored)
	if err != nil {
		return err
	}
	for _, lever := range levers() {
		line := Line{Lever: lever, Acted: Fates{}}
		for _, of := range statement.Lines {
			if of.Lever == lever {
				line.Saved = of.Saved
			}
		}
		for _, m := range l.nodes {
			n := m.recorded()
			line.add(probe, n.closed, &n.acted, l.now, n.truth.drawn)
		}
		for _, g := range l.groups {
			if lever == model.LeverTrafficShare {
				line.add(probe, g.closed, &g.acted, l.now, g.drawn)
			}
		}
		o.Truth += line.Truth
		o.Lines = append(o.Lines, line)
	}
	return nil
}

// add the blocks of a unit that are booked, with what it truly drew between two times.
func (line *Line) add(probe *ledger.Ledger, closed []blocks.Block, acted *acts, now time.Time, drawn func(from, to time.Time) joules) {
	booked := map[act]bool{}
	for i := range closed {
		b := &closed[i]
		switch {
		case b.Lever != line.Lever:
		case b.Excluded != "":
			line.Excluded++
		case b.On && isBooked(probe, b.Unit, b.Lever, b.From, b.To, now):
			booked[actOf(b)] = true
			judged := b.Seconds / b.To.Sub(b.From).Seconds()
			from := b.To.Add(-b.To.Sub(b.From) * time.Duration(judged*1000) / 1000)
			line.Truth += saved(line.Lever, drawn(from, b.To))
			line.Blocks++
		}
	}
	acted.fates(line.Acted, line.Lever, closed, booked, now)
}

// drawn is what all hosts of the group's nodes drew between two times.
func (g *group) drawn(from, to time.Time) (sum joules) {
	for _, n := range g.nodes {
		for lacks, one := range n.truth.drawn(from, to) {
			sum[lacks] += one
		}
	}
	return sum
}

// saved by a lever, in truth, beside what else acts: so it is measured and booked. Where
// levers save in part the same, all of them together save more than the sum of that.
func saved(lever model.Lever, j joules) float64 { return j[lacking(lever)] - j[actual] }

// isBooked tells whether a block is in a ledger: it would refuse it. It is asked once of each,
// for then the block is.
func isBooked(l *ledger.Ledger, name string, lever model.Lever, from, to, now time.Time) bool {
	return l.Book(ledger.Block{
		Node: name, Lever: lever, From: from, To: to, On: true, Effect: verify.Shrunk{Log: -0.01, Own: 0.01, Freedom: 10, CommonFreedom: 10},
		Measured: ledger.Measured{Seconds: to.Sub(from).Seconds(), Joules: 1e4, Bytes: 1e6},
	}, now) == ledger.AlreadyBooked
}

// stance of a lever on a unit at the end.
func (l *loop) stance(name string, lever model.Lever) model.Stance {
	stand, _ := l.memory.Of(policyOf().Name, name)
	for _, one := range stand {
		if one.Lever == lever {
			return one.Stance
		}
	}
	return ""
}

// Covered tells whether the ledger's interval covers the truth.
func (o *Outcome) Covered() bool { return o.Ledger.Low <= o.Truth && o.Truth <= o.Ledger.High }

// BookedShare is the share of the time in which levers acted that is booked.
func (o *Outcome) BookedShare() float64 {
	var booked, acted float64
	for _, line := range o.Lines {
		booked += line.Acted[fateBooked]
		for _, seconds := range line.Acted {
			acted += seconds
		}
	}
	return booked / max(1, acted)
}

const percent = 100

// OfOracle is the saving in the hours that are judged over the oracle's, in percent.
func (o *Outcome) OfOracle() float64 { return percent * o.SavedJudged / o.OracleSaved }

// Exploring is what the fleet drew more in all hours than with the oracle's saving, in percent
// of what it draws without levers.
func (o *Outcome) Exploring() float64 { return percent * (o.OracleAll - o.Saved) / o.Without }

// BrokenShare is the part of VMs' time in which levers cost service, in percent.
func (o *Outcome) BrokenShare() float64 {
	return percent * float64(o.Broken) / float64(max(1, o.Looked))
}

// Adopted is after how many hours a lever was adopted on a class for the last time that none
// had it adopted before. False: never.
func (o *Outcome) Adopted(lever model.Lever) (hours float64, is bool) {
	seen := map[verify.Class]bool{}
	for _, e := range o.Events {
		if e.Kind == proof.Adopted && e.Lever == lever && !seen[e.Class] {
			seen[e.Class], hours, is = true, e.At.Hours(), true
		}
	}
	return hours, is
}

// String tells all of it.
func (o *Outcome) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "simulated: saved %.2f %% in all, %.2f %% in the judged hours, the oracle %.2f %%: %.1f %% of it; exploring cost %.2f %%; service broken %.4f %% of %d\n",
		percent*o.Saved/o.Without, percent*o.SavedJudged/o.WithoutJudged, percent*o.OracleSaved/o.WithoutJudged, o.OfOracle(), o.Exploring(), o.BrokenShare(), o.Looked)
	fmt.Fprintf(&b, "simulated: the ledger has %.0f J from %.0f to %.0f, in truth %.0f: covered %v\n", o.Ledger.Value, o.Ledger.Low, o.Ledger.High, o.Truth, o.Covered())
	fmt.Fprintf(&b, "simulated: the manager withdrew Affinity from VMs %d times rightly, %d falsely (%.3f a VM-day of %.1f) and %d times to see how they are without, from all of a node's %d times; %d blocks are guarded\n",
		o.Withdrawals.Right, o.Withdrawals.False, o.Withdrawals.FalseADay(), o.Withdrawals.VMDays, o.Withdrawals.Doubts, o.Withdrawals.Nodes, o.Withdrawals.Blocks)
	for _, line := range o.Lines {
		fmt.Fprintf(&b, "simulated: %s: %.0f J from %.0f to %.0f, in truth %.0f; %d blocks booked, %d excluded; of the time: %v\n",
			line.Lever, line.Saved.Value, line.Saved.Low, line.Saved.High, line.Truth, line.Blocks, line.Excluded, line.Acted)
	}
	for _, s := range o.Standings {
		fmt.Fprintf(&b, "simulated: %s %s%s: %s, %+.4f from %+.4f to %+.4f: %s\n", s.Lever, s.Class, s.Unit, s.Stance, s.Log, s.Low, s.High, s.Message)
	}
	for _, n := range o.Nodes {
		fmt.Fprintf(&b, "simulated: %s %s odd %v: effects %+.4f %v, %+.4f %v; saved %.2f %%, oracle %.2f %%\n",
			n.Name, n.Kind, n.Odd, n.Effects[0], n.Stances[0], n.Effects[1], n.Stances[1], percent*n.Saved, percent*n.Best)
	}
	for _, g := range o.Groups {
		fmt.Fprintf(&b, "simulated: %s %s: effect %+.4f %v\n", g.Name, g.Kind, g.Effect, g.Stance)
	}
	return b.String()
}
