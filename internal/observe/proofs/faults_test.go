package proofs

import (
	"math"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// spoiled is what goes wrong with a node for an hour.
type spoiled struct {
	// counters spoils what an agent counted, of which first is what it had counted when the
	// fault began.
	counters func(is *model.Totals, first model.Totals)
	// figure spoils a server's figure, of which first is the one when the fault began.
	figure func(is *model.Power, first model.Power)
	// node and manager are by how much their clocks are set.
	node, manager time.Duration
	// cause that blocks are left out for, if the agent counts and if a server tells. Empty:
	// there is no such fault.
	cause, byServer ledger.Cause
	// again is true when it ends the trial, and another one comes a day later.
	again bool
	// refused is what the condition and the Event name where a server's figure is refused.
	refused energy.Reason
}

func faults() map[string]spoiled {
	lost := func(first *model.Totals, is *model.Totals) units.Joules { return is.Joules - first.Joules }
	return map[string]spoiled{
		"zero": {
			counters: func(is *model.Totals, first model.Totals) { is.Joules = first.Joules },
			figure:   func(is *model.Power, _ model.Power) { is.Watts = 0 },
			cause:    ledger.Implausible, byServer: ledger.MeterFailed, refused: energy.ReasonImplausible,
		},
		"frozen": {
			counters: func(is *model.Totals, first model.Totals) {
				is.Joules, is.MeteredSeconds = first.Joules, first.MeteredSeconds
			},
			figure: func(is *model.Power, first model.Power) { is.Watts = first.Watts },
			cause:  ledger.MeterFailed, byServer: ledger.MeterFailed, refused: energy.ReasonFrozen,
		},
		"times a thousand": {
			counters: func(is *model.Totals, first model.Totals) { is.Joules = first.Joules + 1000*lost(&first, is) },
			figure:   func(is *model.Power, _ model.Power) { is.Watts *= 1000 },
			cause:    ledger.Contradictory, byServer: ledger.MeterFailed, refused: energy.ReasonImplausible,
		},
		"not a number": {
			figure:   func(is *model.Power, _ model.Power) { is.Watts = units.Watts(math.NaN()) },
			byServer: ledger.MeterFailed, refused: energy.ReasonNotFinite,
		},
		"negative": {
			counters: func(is *model.Totals, first model.Totals) { is.Joules = first.Joules - lost(&first, is) },
			figure:   func(is *model.Power, _ model.Power) { is.Watts *= -1 },
			cause:    ledger.Contradictory, byServer: ledger.MeterFailed, refused: energy.ReasonImplausible,
		},
		"counts anew": {
			counters: func(is *model.Totals, first model.Totals) {
				*is = model.Totals{
					Since: noon(), Seconds: is.Seconds - first.Seconds, MeteredSeconds: is.MeteredSeconds - first.MeteredSeconds,
					Joules: lost(&first, is), Bytes: is.Bytes - first.Bytes,
				}
			},
			cause: ledger.AgentRestarted,
		},
		"counts anew and does not say so": {
			counters: func(is *model.Totals, first model.Totals) { is.Joules = lost(&first, is) },
			cause:    ledger.Contradictory,
		},
		"the node's clock is an hour ahead":     {node: time.Hour, cause: ledger.ClockJumped, byServer: ledger.ClockJumped},
		"the node's clock is an hour late":      {node: -time.Hour, cause: ledger.ClockJumped, byServer: ledger.ClockJumped},
		"the manager's clock is an hour ahead":  {manager: time.Hour, byServer: ledger.ClockJumped},
		"the manager's clock is an hour late":   {manager: -time.Hour, byServer: ledger.ClockJumped},
		"the node's clock is 30 d late":         {node: -30 * 24 * time.Hour, cause: ledger.ClockJumped, byServer: ledger.ClockJumped},
		"the manager's clock is 30 d ahead":     {manager: 30 * 24 * time.Hour, byServer: ledger.MeterFailed, again: true},
		"the manager's clock is 30 d late":      {manager: -30 * 24 * time.Hour, byServer: ledger.InFuture, again: true},
		"the server's clock is an hour ahead":   {figure: func(is *model.Power, _ model.Power) { is.Time = is.Time.Add(time.Hour) }, byServer: ledger.MeterFailed},
		"the server's figures are an hour late": {figure: func(is *model.Power, _ model.Power) { is.Time = is.Time.Add(-time.Hour) }, byServer: ledger.MeterFailed, refused: energy.ReasonWentBack},
	}
}

// edge is where a server's figures of a node come in.
type edge struct {
	guard   energy.Guard
	good    *model.Power
	refused *energy.Refusal
	seen    map[energy.Reason]bool
}

// take a figure, as the manager does, and say what is known of the power by now.
func (e *edge) take(reading *model.Power, now time.Time) *model.Power {
	if e.refused = e.guard.Check(*reading); e.refused == nil {
		e.good = reading
	} else {
		e.seen[e.refused.Reason] = true
	}
	setting := energy.Setting{Type: v1alpha1.PowerPrometheus, Freshness: time.Minute}
	return energy.Choose([]energy.Setting{setting}, func(energy.Setting) energy.Candidate {
		return energy.Candidate{Reading: e.good, Refused: e.refused, Since: noon()}
	}, now).Power
}

// TestFaultsOfMetersAndClocks: whatever a meter or a clock does for an hour, in another one on
// each node, beginning within a trial: the lever stands as it does in truth, no node is booked
// to have drawn or saved what it did not, and blocks are left out for a cause that names it.
func TestFaultsOfMetersAndClocks(t *testing.T) {
	for name, fault := range faults() {
		for _, server := range []bool{false, true} {
			cause := fault.cause
			if server {
				cause = fault.byServer
			}
			if cause == "" && fault.manager == 0 || server && fault.figure == nil && fault.node == 0 && fault.manager == 0 {
				continue
			}
			t.Run(map[bool]string{false: "counters, ", true: "a server, "}[server]+name, func(t *testing.T) {
				t.Parallel()
				f := newFleet(t, 7, 6, -0.08)
				for i, n := range f.nodes {
					n.fault, n.edge = &fault, nil
					n.faultFrom = noon().Add(90*time.Minute + time.Duration(i)*35*time.Minute)
					if server {
						n.edge, n.source = &edge{seen: map[energy.Reason]bool{}}, v1alpha1.PowerPrometheus
					}
				}
				f.until("a trial", 20*time.Minute, f.all(model.StanceOnTrial))
				f.until("a verdict", verdictWithin(&fault), f.all(model.StanceAdopted))
				f.run(6 * time.Hour)
				f.checkFault(cause, fault.again)
				if refused := fault.refused; server && refused != "" && !f.nodes[0].edge.seen[refused] {
					t.Errorf("simulated: no figure is refused as %s, but as %v", refused, f.nodes[0].edge.seen)
				}
			})
		}
	}
}

func verdictWithin(fault *spoiled) time.Duration {
	if fault.again {
		return 48 * time.Hour
	}
	return 14 * time.Hour
}

// checkFault wants what is known and booked to be so.
func (f *fleet) checkFault(cause ledger.Cause, again bool) {
	f.Helper()
	for _, one := range f.news {
		if !again && one.Kind != proof.TrialStarted && one.Kind != proof.Adopted {
			f.Errorf("simulated: %+v", one)
		}
	}
	f.lead().View(testPolicy, func(p *proof.Proofs, _ *ledger.Ledger) {
		for _, n := range f.nodes {
			const close = 0.015
			if is := p.Effect(n.name, v1alpha1.LeverAffinity); math.Abs(is.Log-n.effect) > close {
				f.Errorf("simulated: the lever is known to do %+v to %s, in truth %v", is, n.name, n.effect)
			}
		}
	})
	// Never more than was. Two hours of nine may be missing, of a server's figures that were an
	// hour ahead, and what is compared with it.
	const most, leastDrawn, leastSaved = 1.02, 0.7, 0.4
	all, causes := booked(f.T, f.lead(), false)
	f.Logf("simulated: %.3f of what was drawn and %.3f of what was saved is booked; left out: %v", float64(all.Drawn)/f.drawn(), all.Saved.Value/f.truth(), causes)
	if drawn := float64(all.Drawn) / f.drawn(); drawn > most || drawn < leastDrawn {
		f.Errorf("simulated: %.3f of what was drawn is booked; left out: %v", drawn, causes)
	}
	half := all.Saved.High - all.Saved.Value
	if saved, truth := all.Saved.Value, f.truth(); saved-half > truth || saved < leastSaved*truth {
		f.Errorf("simulated: %+v J are booked as saved, in truth %.0f; left out: %v", all.Saved, truth, causes)
	}
	if modelled, _ := booked(f.T, f.lead(), true); modelled.Saved.Value != 0 {
		f.Errorf("simulated: %+v are booked as modelled", modelled.Saved)
	}
	if cause != "" && causes[cause] == 0 {
		f.Errorf("simulated: nothing is left out as %s, but %v", cause, causes)
	}
}

// drawn is what all nodes truly drew.
func (f *fleet) drawn() float64 {
	joules := 0.0
	for _, n := range f.nodes {
		joules += n.drawn
	}
	return joules
}
