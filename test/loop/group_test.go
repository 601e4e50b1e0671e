package loop

import (
	"math"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner"
)

// TestGroupsAreProven: the product's planner of groups, experiments and ledger see by
// themselves where uneven shares of a Service's traffic save energy, and find that they cost
// some on one model of servers, which nothing foretells. What is booked is what all of a group's
// nodes truly saved together.
func TestGroupsAreProven(t *testing.T) {
	t.Parallel()
	l := &loop{progress: t.Output(), Config: Config{
		Seed: 1, Nodes: 8, VMs: 24, GroupNodes: 2, Hours: 13, Judged: 1, Tick: time.Minute, Step: 30 * time.Second,
		Quiet: true, Levers: []model.Lever{model.LeverTrafficShare},
	}}
	t.Cleanup(func() {
		if err := l.close(); err != nil {
			t.Error(err)
		}
	})
	if err := l.wake(); err != nil {
		t.Fatal(err)
	}
	if err := l.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	o, err := l.outcome()
	if err != nil {
		t.Fatal(err)
	}
	t.Log(&o)
	seen := 0
	for _, s := range o.Standings {
		switch s.Class.CPUModel {
		case "simulated server a": // too few groups for a verdict by now
			seen++
			if !(s.High < 0) || s.Stance != model.StanceOnTrial && s.Stance != model.StanceAdopted {
				t.Errorf("simulated: shares that save energy are not seen to: %+v", s)
			}
		case "simulated server c":
			seen++
			if s.Stance != model.StanceRejected {
				t.Errorf("simulated: shares that cost energy are not rejected: %+v", s)
			}
		}
	}
	if seen != 2 {
		t.Errorf("simulated: trials of shares are on %d of two models: %+v", seen, o.Standings)
	}
	line := o.Lines[len(o.Lines)-1]
	if line.Lever != model.LeverTrafficShare || line.Truth == 0 || line.Blocks == 0 || !o.Covered() {
		t.Errorf("simulated: %.0f J are booked, from %.0f to %.0f, in truth %+v", o.Ledger.Value, o.Ledger.Low, o.Ledger.High, line)
	}
	if o.BrokenShare() >= 0.1 || o.Looked == 0 {
		t.Errorf("simulated: levers cost service %d times of %d", o.Broken, o.Looked)
	}
}

// TestSharesGoRound: members of a group carry all of its traffic, whoever is there, and evenly
// on twins without the lever.
func TestSharesGoRound(t *testing.T) {
	t.Parallel()
	l := &loop{Config: Config{Seed: 1, Nodes: 4, VMs: 24, GroupNodes: 2, Hours: 1, Judged: 1, Tick: time.Minute, Step: 30 * time.Second}}
	t.Cleanup(func() {
		if err := l.close(); err != nil {
			t.Error(err)
		}
	})
	if err := l.wake(); err != nil {
		t.Fatal(err)
	}
	if len(l.groups) != 1 || len(l.groups[0].nodes) != 2 {
		t.Fatalf("four nodes, of which two are of one model, have %d groups", len(l.groups))
	}
	g := l.groups[0]
	members, slots := g.members()
	slots[0].absent = true
	uneven := map[string]float64{members[0].Name: 0.5, members[1].Name: 0.25, members[2].Name: 0.25}
	for _, off := range []bool{false, true} {
		g.plan = &planner.GroupPlan{Action: planner.GroupSteer, Shares: uneven, Off: off}
		if err := g.pass(start()); err != nil {
			t.Fatal(err)
		}
		steered, evenly := 0.0, 0.0
		for _, is := range g.given {
			steered, evenly = steered+is.steered, evenly+is.evenly
		}
		first := g.given[slots[1].vm.PodUID]
		want := given{level: g.level, steered: 0.5, evenly: 1 / float64(len(members)-1), acts: true}
		if off {
			want.steered, want.acts = want.evenly, false
		}
		if first != want || math.Abs(steered-1) > 1e-9 || math.Abs(evenly-1) > 1e-9 {
			t.Errorf("off %v: %+v, want %+v; all together %v, evenly %v", off, first, want, steered, evenly)
		}
	}
}
