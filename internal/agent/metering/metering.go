// Package metering meters a node's energy: what the node draws and from where that is
// known, what was used since the agent's start, and what of it each VM is likely to cost. It is pure: rates, counters and topology go in,
// and the rates come out completed.
package metering

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/energy/modelled"
	"github.com/joulevirt/joulevirt/internal/energy/powercap"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
)

const (
	// grace is how long a meter's last good figure stands while the meter fails.
	// Then the node counts as one without a meter, and its power is modelled.
	grace = time.Minute
	// alike is by how much of it a meter's interval may differ from that of the
	// rates for both to be of the same load.
	alike = 0.1
	// maxMessage is the longest message, in bytes.
	maxMessage = 512
)

// MeterSource is the meter that the agent reads itself.
const MeterSource = powercap.Source

// Status is how the node's energy is known. It is immutable.
type Status struct {
	// Refusal says why the last reading of the meter was not used, or that there
	// is no meter. Its message stays the same while its reason does. Nil: the
	// reading was used.
	Refusal *energy.Refusal
	// Refusals counts the readings of a meter that were not used, by why.
	Refusals map[energy.Reason]uint64
	// Used is in the order of source and scope.
	Used []Used
	// Modelled is what the model predicted of the last round, before it learned from
	// the meter. Nil: nothing.
	Modelled *model.Power
	// Accuracy is how well the model predicted what the meter then measured.
	Accuracy power.Accuracy
}

// Account meters one node. It is not for concurrent use.
type Account struct {
	prior   func(model.Topology) power.NodePrior
	started time.Time

	meter powercap.Meter
	guard energy.Guard
	// measured is the newest good reading of the meter. Nil: there was none.
	measured *model.Power
	// refusal of the last reading, see Status.
	refusal  *energy.Refusal
	refusals map[energy.Reason]uint64

	model *modelled.Model
	// shape is the machine that the model was made for.
	shape shape

	// figure is the node's power as it was published last.
	figure *model.Power
	totals model.Totals
	// origin of the joules in the totals.
	origin origin
	used   []Used
	// modelledFor is how many seconds were modelled since the last reading that
	// was used.
	modelledFor float64
	// sampled is true when the last round had CPU times: rates of the next one
	// are known.
	sampled bool

	shares []power.Share
}

// shape is what makes a machine another one to a model.
type shape struct{ cores, packages int }

func shapeOf(t model.Topology) shape {
	packages := map[int]bool{}
	for _, core := range t.Cores {
		packages[core.Package] = true
	}
	return shape{cores: len(t.Cores), packages: len(packages)}
}

// New returns the Account of a node of which nothing is known yet. prior is
// what is expected of a machine before anything is learned of it.
func New(prior func(model.Topology) power.NodePrior, started time.Time) *Account {
	return &Account{
		prior: prior, started: started,
		refusals: map[energy.Reason]uint64{}, totals: model.Totals{Since: started},
	}
}

// round is what happened in one round.
type round struct {
	at time.Time
	// load is nil when the CPU times of this round, or of the one before, are
	// missing.
	load    *power.Load
	seconds float64
	// bytes of VMs' traffic, those of them that they sent, and in how many packets.
	bytes, sent, packets float64
	// reading is nil when the meter's was refused.
	reading *powercap.Reading
}

// Add records a round, and completes its rates: the node's power, why it is
// not measured, the totals, and the VMs' shares.
func (a *Account) Add(rates *model.NodeRates, counters powercap.Counters, topology model.Topology) Status {
	is := shapeOf(topology)
	now := round{at: rates.Time, seconds: rates.IntervalSeconds, load: a.load(rates, topology)}
	now.bytes, now.sent, now.packets = traffic(rates)
	if reading, refusal := a.read(counters, topology.Nested, is.packages); refusal == nil {
		now.reading = &reading
		a.measured = &reading.Power
		a.refuse(nil)
	} else {
		a.refuse(refusal)
	}
	a.fitModel(topology, is)
	predicted, unknown := a.predict(now)
	a.learn(now)

	figure, message := a.choose(now, predicted, unknown, topology.Nested)
	a.figure, rates.PowerMessage = figure, strings.ToValidUTF8(message[:min(len(message), maxMessage)], "")
	a.count(now)
	rates.Power = a.figure
	totals := a.totals
	rates.Totals = &totals
	a.attribute(rates, now)
	return Status{
		Refusal: a.refusal, Refusals: maps.Clone(a.refusals), Used: slices.Clone(a.used),
		Modelled: predicted, Accuracy: a.model.Accuracy(),
	}
}

// load of the round; nil when it is not known. A CPU without an earlier time
// has rate 0, which does not mean that it was idle.
func (a *Account) load(rates *model.NodeRates, topology model.Topology) *power.Load {
	known := a.sampled && rates.IntervalSeconds > 0
	a.sampled = len(rates.CPUs) > 0
	if !known || !a.sampled {
		return nil
	}
	load := power.LoadOf(rates, topology)
	return &load
}

// traffic of VMs in the round, in bytes, what they sent of it, and in how many packets. A tap that came or whose
// counters started over has rate 0.
func traffic(rates *model.NodeRates) (all, sent, packets float64) {
	const bitsPerByte = 8
	for i := range rates.VMs {
		for _, tap := range rates.VMs[i].Taps {
			sent += float64(tap.FromVM.BitsPerSecond) / bitsPerByte * rates.IntervalSeconds
			packets += float64(tap.FromVM.PacketsPerSecond) * rates.IntervalSeconds
			all += float64(tap.ToVM.BitsPerSecond) / bitsPerByte * rates.IntervalSeconds
		}
	}
	return all + sent, sent, packets
}

func (a *Account) read(counters powercap.Counters, nested bool, packages int) (powercap.Reading, *energy.Refusal) {
	if nested {
		// Some hypervisors show counters to their VMs. They are a share that the
		// hypervisor works out by CPU time, which is what the model does, too.
		return powercap.Reading{}, energy.Refuse(energy.ReasonNoCounters, "the node is itself a VM and has no energy counters")
	}
	reading, refusal := a.meter.Read(counters, packages)
	if refusal == nil {
		refusal = a.guard.Check(reading.Power)
	}
	return reading, refusal
}

// refuse remembers why a reading is not used. The message of the first one of a
// kind stays: those that follow differ in numbers only.
func (a *Account) refuse(refusal *energy.Refusal) {
	if refusal == nil || a.refusal == nil || a.refusal.Reason != refusal.Reason {
		a.refusal = refusal
	}
	if refusal != nil && (a.measured != nil || !hopeless(refusal.Reason)) {
		a.refusals[refusal.Reason]++
	}
}
