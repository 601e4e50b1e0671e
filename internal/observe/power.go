package observe

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
)

// reportFreshness is the age at which a report counts as lost: an agent writes
// every five minutes at least, so this is two that failed.
const reportFreshness = 15 * time.Minute

// serverTimeout bounds an answer of a Prometheus server.
const serverTimeout = 10 * time.Second

// Rates gives nodes' rates while they are fresh.
type Rates interface {
	Fresh(node string) *model.NodeRates
	// Latest is Fresh with when the rates came, by the manager's clock.
	Latest(node string) (*model.NodeRates, time.Time)
	// Awaited is true until the node's agent was asked once.
	Awaited(node string) bool
}

// Meters gives what Prometheus servers said of nodes.
type Meters interface {
	Candidate(server energy.Server, node string) energy.Candidate
}

// Powers tells what is known of nodes' power, now. Who plans and who tells
// people ask the same.
type Powers struct {
	Rates  Rates
	Meters Meters
	Clock  clock.PassiveClock
	// Past remembers meters. Nil: nothing is remembered.
	Past *MeterPast
}

// Of tells what is known of a node's power by a policy's sources. The report may
// be nil.
func (p *Powers) Of(node string, settings []energy.Setting, report *v1alpha1.NodeReport) energy.Choice {
	now := p.Clock.Now()
	agent := agentWord{node: node, report: report, reportFresh: ReportFresh(report, now)}
	agent.rates, agent.received = p.Rates.Latest(node)
	know := func(setting energy.Setting) energy.Candidate {
		if setting.Type == v1alpha1.PowerPrometheus {
			return p.Meters.Candidate(setting.Server, node)
		}
		return agent.candidate(setting.Type)
	}
	choice := energy.Choose(settings, know, now)
	choice.LostSince = p.Past.Lose(node, settings, &choice, now)
	return choice
}

// ReportFresh reports whether a node's agent lives, by its report, which may be
// nil.
func ReportFresh(report *v1alpha1.NodeReport, now time.Time) bool {
	return report != nil && report.Status.ReportedAt != nil && now.Sub(report.Status.ReportedAt.Time) <= reportFreshness
}

// EnergySettings reads a policy's energy sources.
func EnergySettings(policy *v1alpha1.EnergyPolicy) []energy.Setting {
	sources := policy.Spec.Energy.Sources
	settings := make([]energy.Setting, 0, len(sources))
	for _, source := range sources {
		setting := energy.Setting{Type: source.Type, Freshness: source.Freshness.Duration}
		if source.Prometheus != nil {
			setting.Server = energyServer(source.Prometheus)
			setting.Server.Freshness = setting.Freshness
		}
		settings = append(settings, setting)
	}
	return settings
}

func matchersOf(matchers map[string]v1alpha1.MatcherValue) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(matchers)) {
		all = append(all, fmt.Sprintf("%s=%q", name, matchers[name]))
	}
	return strings.Join(all, ",")
}

func energyServer(p *v1alpha1.PrometheusSource) energy.Server {
	server := energy.Server{
		URL: p.URL, Timeout: serverTimeout, Secret: p.Secret, Matchers: matchersOf(p.Matchers),
	}
	if p.Query != nil {
		server.Query = *p.Query
	}
	return server
}

// agentWord is what a node's agent said of its power: each second by its rates,
// and coarsely by its report.
type agentWord struct {
	node string
	// rates are nil when none are fresh.
	rates    *model.NodeRates
	received time.Time
	// report is nil when there is none.
	report      *v1alpha1.NodeReport
	reportFresh bool
}

// candidate is what the agent says of one of its own sources, RAPL or Model.
//
// An agent that starts has no figure in its first rounds, and rates can be lost
// for a while: until the agent writes another report, the report's word holds.
func (a agentWord) candidate(source v1alpha1.PowerSource) energy.Candidate {
	if a.rates != nil && a.rates.Power != nil && a.rates.Power.Source == source {
		return energy.Candidate{Reading: a.byOurClock(*a.rates.Power), Since: a.received, Refused: a.doubt(source)}
	}
	other := a.rates != nil && a.rates.Power != nil
	said := a.report != nil && a.report.Status.Power.Source == source && !other
	switch {
	case said && a.reportFresh:
		return energy.Candidate{Reported: true, Certain: true}
	case said && a.rates == nil:
		// Nothing is known of the node any more: that is not the same as no meter.
		return energy.Candidate{Refused: a.refuse(source)}
	}
	refused := a.refuse(source)
	return energy.Candidate{Refused: refused, Certain: refused.Reason != energy.ReasonAwaiting}
}

// byOurClock gives a reading the time that it has by the manager's clock: the
// agent's may differ.
func (a agentWord) byOurClock(reading model.Power) *model.Power {
	behind := max(0, a.rates.Time.Sub(reading.Time))
	reading.Time = a.received.Add(-behind)
	return &reading
}

// doubt is why the agent keeps a figure of its meter that is not of this round.
// Its message begins with the reason, as a Refusal's text does.
func (a agentWord) doubt(source v1alpha1.PowerSource) *energy.Refusal {
	if !source.Measures() || a.rates.PowerMessage == "" {
		return nil
	}
	reason, message, found := strings.Cut(a.rates.PowerMessage, ": ")
	if !found || !model.IsWord(reason) {
		return energy.Refuse(energy.ReasonStale, "%s", a.rates.PowerMessage)
	}
	return energy.Refuse(energy.Reason(reason), "%s", message)
}

func (a agentWord) refuse(source v1alpha1.PowerSource) *energy.Refusal {
	if a.report == nil || a.rates == nil && !a.reportFresh {
		reason := energy.ReasonNoMeter
		if source == v1alpha1.PowerModel {
			reason = energy.ReasonNoModel
		}
		return energy.Refuse(reason, "the node's agent does not report: look whether it runs there, and at NodeReport %s", a.node)
	}
	if source == v1alpha1.PowerModel {
		return energy.Refuse(energy.ReasonNoModel, "the node's agent models no power: it does so on nodes without energy counters that report their topology")
	}
	refusal := energy.Refuse(energy.ReasonNoMeter, "the node's agent reads no energy counters: see condition MeterAvailable of NodeReport %s", a.node)
	meter := meta.FindStatusCondition(a.report.Status.Conditions, v1alpha1.ConditionMeterAvailable)
	if meter != nil && meter.Reason != v1alpha1.ReasonMeterFound {
		refusal.Message = cmp.Or(meter.Message, refusal.Message)
		if model.IsWord(meter.Reason) {
			refusal.Reason = energy.Reason(meter.Reason)
		}
	}
	if a.rates != nil {
		refusal.Message = cmp.Or(a.rates.PowerMessage, refusal.Message)
	}
	return refusal
}

// lostFor is how long a node counts as one whose meter is lost, rather than as one that has
// none: an outage of a night, or of a weekend's first day, is for people to end.
const lostFor = 24 * time.Hour

// MeterPast remembers when nodes were metered last. It is safe for concurrent use. A nil one
// remembers nothing.
type MeterPast struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// NewMeterPast returns an empty memory.
func NewMeterPast() *MeterPast { return &MeterPast{last: map[string]time.Time{}} }

// Metered notes that a node's power is measured now, or was when an earlier manager knew it
// last.
func (p *MeterPast) Metered(node string, now time.Time) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last[node] = now
}

// Retain forgets all nodes but those given.
func (p *MeterPast) Retain(names map[string]bool) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.last, func(name string, _ time.Time) bool { return !names[name] })
}

// Lose tells, of a node of which no meter knows the power, when it was metered last, if it
// lost its meter rather than has none: one of the policy's sources is to be a meter, and one
// was within a day. The zero value: it has none, or has one, or that is not known yet.
func (p *MeterPast) Lose(node string, settings []energy.Setting, choice *energy.Choice, now time.Time) time.Time {
	if p == nil || choice.Metered || choice.Unknown {
		return time.Time{}
	}
	for _, setting := range settings {
		if !setting.Type.Measures() {
			continue
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if last, known := p.last[node]; known && now.Sub(last) < lostFor {
			return last
		}
		break
	}
	return time.Time{}
}

// LostUntil is until when a node that was metered last at a time counts as one whose meter is
// lost.
func LostUntil(last time.Time) time.Time { return last.Add(lostFor) }
