package metering

import (
	"math"

	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/energy/modelled"
	"github.com/joulevirt/joulevirt/internal/model"
)

// hopeless reasons do not pass by themselves.
func hopeless(reason energy.Reason) bool {
	return reason == energy.ReasonNoCounters || reason == energy.ReasonPermission
}

// fitModel makes another model for another machine, or when the meter is of
// another scope.
func (a *Account) fitModel(topology model.Topology, is shape) {
	scope := model.ScopePackage
	if a.measured != nil {
		scope = a.measured.Scope
	}
	if a.model == nil || a.shape != is || a.model.Scope() != scope {
		a.model, a.shape = modelled.New(a.prior(topology), scope), is
	}
}

// predict returns what the model says of the round's load; nil with the reason
// when it says nothing.
func (a *Account) predict(now round) (*model.Power, *energy.Refusal) {
	if now.load == nil {
		return nil, energy.Refuse(energy.ReasonAwaiting, "the node's load is known after two rounds of samples")
	}
	said, refusal := a.model.Power(*now.load, now.at, now.seconds)
	if refusal != nil {
		return nil, refusal
	}
	return &said, nil
}

func (a *Account) learn(now round) {
	if now.load == nil || now.reading == nil {
		return
	}
	if math.Abs(now.reading.Power.IntervalSeconds-now.seconds) <= alike*now.seconds {
		a.model.Learn(*now.load, now.reading.Power)
	}
}

// choose returns the node's power, and why it is not measured. The model does
// not stand in for a meter before that has failed for some time: a figure that
// changes its source for a second helps nobody.
func (a *Account) choose(now round, said *model.Power, unsaid *energy.Refusal, nested bool) (figure *model.Power, message string) {
	if now.reading != nil {
		return a.measured, ""
	}
	last := a.started
	if a.measured != nil {
		last = a.measured.Time
	}
	missing := nested || (a.measured == nil && hopeless(a.refusal.Reason))
	if !missing && now.at.Sub(last) <= Grace {
		if a.measured != nil && a.refusal.Reason == energy.ReasonAwaiting {
			return a.measured, ""
		}
		return a.measured, a.refusal.Error()
	}
	switch {
	case unsaid != nil && a.figure != nil && a.figure.Source == model.SourceModel:
		said = a.figure // of an earlier round, as its time tells
	case unsaid != nil:
		return nil, unsaid.Error()
	}
	if missing {
		return said, "modelled: " + a.refusal.Message
	}
	return said, "modelled: the meter is of no use for more than " + Grace.String() + ": " + a.refusal.Error()
}
