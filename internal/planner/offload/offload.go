// Package offload decides how much memory a gateway's store needs for the
// response time that an owner wants.
//
// It follows the memory control of Xu, Energy Profiling and Performance
// Optimization for Network-related Transactions in Virtualized Cloud, 2016,
// chapter 4: a queueing model answers a change of load at once, and an adaptive
// loop removes the error that the model leaves.
package offload

import (
	"math"
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// Tick is the time between two observations.
	Tick = minInterval
	// minInterval and maxInterval bound the time between two decisions of the loop, as in
	// the study.
	minInterval = 30 * time.Second
	maxInterval = 4 * time.Minute
	// smallError of the response time, relative to the target, is left.
	smallError = 0.1
	// smallChange of the store, relative to its size, is left.
	smallChange = 0.05
	// movedError is how far the response time moves, relative to the target, until the
	// queue's estimate is made anew.
	movedError = 0.25
	// fullStore is the share of its limit from which a store counts as full: nginx evicts
	// in steps, so a store at its limit is a bit below it.
	fullStore = 0.9
)

// Settings are what an owner wants of a gateway.
type Settings struct {
	// Target is the mean response time.
	Target time.Duration
	// Min and Max bound the store.
	Min, Max units.Bytes
}

// Observation is what a gateway saw in a time.
type Observation struct {
	Duration time.Duration
	// Arrivals are requests that came, and Hits and Misses those that ended.
	Arrivals, Hits, Misses int
	// HitTime and MissTime are sums of response times.
	HitTime, MissTime time.Duration
	// Used is what the store holds at the end.
	Used units.Bytes
}

// add makes one observation of two that follow each other.
func (o Observation) add(next Observation) Observation {
	return Observation{
		Duration: o.Duration + next.Duration,
		Arrivals: o.Arrivals + next.Arrivals, Hits: o.Hits + next.Hits, Misses: o.Misses + next.Misses,
		HitTime: o.HitTime + next.HitTime, MissTime: o.MissTime + next.MissTime,
		Used: next.Used,
	}
}

// responseTime is the mean in seconds.
func (o Observation) responseTime() float64 {
	return (o.HitTime + o.MissTime).Seconds() / float64(o.Hits+o.Misses)
}

// Reason says why a store has the size that it has.
type Reason string

const (
	// NoRequests: nothing to decide on.
	NoRequests Reason = "NoRequests"
	// OnTarget: the error of the response time, or the change that it asks for, is small.
	OnTarget Reason = "OnTarget"
	// Waiting: what the last change does is observed.
	Waiting Reason = "Waiting"
	// Resized: the store gets another size.
	Resized Reason = "Resized"
	// NotFull: the store has room left, so more memory would change nothing.
	NotFull Reason = "NotFull"
	// AtLimit: the store is as large, or as small, as the owner allows.
	AtLimit Reason = "AtLimit"
	// OutOfReach: more requests come than even the largest store can serve. The store keeps
	// its size.
	OutOfReach Reason = "OutOfReach"
)

// Decision is the size of the store until the next decision.
type Decision struct {
	Memory units.Bytes
	Reason Reason
}

// Controller decides the size of one store.
type Controller struct {
	settings Settings
	queue    queue
	loop     loop
	memory   units.Bytes
	// reference is the relative error of the response time that later ones are compared
	// with: the first one after a change.
	reference float64
	changed   bool
	// pending is what was observed since the loop's last decision, and interval the time
	// until its next one.
	pending  Observation
	interval time.Duration
}

// New returns a controller whose store has the smallest size until the first decision.
func New(settings Settings) *Controller {
	return &Controller{
		settings: settings, loop: newLoop(), memory: settings.Min,
		reference: math.Inf(1), interval: minInterval,
	}
}

// Decide returns the store's size from now on, after a Tick was observed. When the
// response time has moved, the queue's model is solved for the new size. Else the
// loop decides at intervals that are halved after a change and doubled otherwise.
func (c *Controller) Decide(o Observation) Decision {
	c.pending = c.pending.add(o)
	if o.Duration <= 0 || o.Hits+o.Misses <= 0 {
		return Decision{c.memory, NoRequests}
	}
	c.queue.observe(o, c.memory)
	if c.queue.load(c.settings.Max) >= 1 {
		return Decision{c.memory, c.end(OutOfReach)}
	}
	now := c.relativeError(o)
	if c.changed {
		c.reference, c.changed = now, false
	}
	if math.Abs(now-c.reference) > movedError {
		c.loop.forgetChange()
		return c.resize(c.queue.memory(c.settings.Target.Seconds(), c.settings.Max), o.Used)
	}
	if c.pending.Duration < c.interval {
		return Decision{c.memory, Waiting}
	}
	mean := c.relativeError(c.pending)
	c.loop.learn(mean)
	if math.Abs(mean) <= smallError {
		return Decision{c.memory, c.end(OnTarget)}
	}
	before := c.memory
	d := c.resize(c.memory*units.Bytes(math.Exp(c.loop.change(mean))), o.Used)
	if d.Reason == Resized {
		c.loop.acted(mean, math.Log(float64(d.Memory/before)))
	}
	return d
}

// relativeError is 0 when the response time is the target, and 1 at twice the target.
func (c *Controller) relativeError(o Observation) float64 {
	return o.responseTime()/c.settings.Target.Seconds() - 1
}

// resize gives the store a size within its bounds, unless that changes little or nothing.
func (c *Controller) resize(wanted, used units.Bytes) Decision {
	wanted = min(max(wanted, c.settings.Min), c.settings.Max)
	switch change := wanted - c.memory; {
	case change == 0:
		return Decision{c.memory, c.end(AtLimit)}
	case change > 0 && used < fullStore*c.memory:
		return Decision{c.memory, c.end(NotFull)}
	case math.Abs(float64(change)) < smallChange*float64(c.memory):
		return Decision{c.memory, c.end(OnTarget)}
	}
	c.memory = wanted
	return Decision{c.memory, c.end(Resized)}
}

// end begins the loop's next interval.
func (c *Controller) end(reason Reason) Reason {
	c.pending = Observation{}
	if reason == Resized {
		c.changed, c.interval = true, max(minInterval, c.interval/2)
	} else {
		c.interval = min(maxInterval, c.interval*2)
	}
	return reason
}
