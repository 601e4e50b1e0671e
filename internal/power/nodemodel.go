package power

import (
	"math"

	"github.com/joulevirt/joulevirt/internal/units"
)

// Coefficients say what a node's power is made of:
//
//	P = Idle + PerBusyCore busy cores + PerWakeUp wake-ups/s + PerAwakeCore awake cores
type Coefficients struct {
	// Idle is the power of a node on which everything sleeps. Learned on a node that
	// never sleeps, it is where the line through the loads that were seen leads to.
	Idle units.Watts
	// PerBusyCore is what one CPU that never idles adds.
	PerBusyCore units.Watts
	// PerWakeUp is what one thread that is switched in adds.
	PerWakeUp units.Joules
	// PerAwakeCore is what one physical core adds by not sleeping deeply.
	PerAwakeCore units.Watts
}

// terms of the model, in the order of Coefficients.
const terms = 4

func (c Coefficients) array() [terms]float64 {
	return [terms]float64{float64(c.Idle), float64(c.PerBusyCore), float64(c.PerWakeUp), float64(c.PerAwakeCore)}
}

// At returns the power at a load.
func (c Coefficients) At(load Load) units.Watts {
	return c.Idle + c.dynamic(float64(load.BusyCores), float64(load.WakeUps), float64(load.AwakeCores))
}

func (c Coefficients) dynamic(busy, wakeUps, awake float64) units.Watts {
	return units.Watts(float64(c.PerBusyCore)*busy + float64(c.PerWakeUp)*wakeUps + float64(c.PerAwakeCore)*awake)
}

// NodePrior is what is known of a node's power before it was observed.
type NodePrior struct {
	// Mean and StdDev of the coefficients. A standard deviation of 0 fixes the
	// coefficient.
	Mean, StdDev Coefficients
	// Noise is the least standard deviation of measured power around the model.
	Noise units.Watts
}

const (
	// nodeMemory is how many full rounds the model remembers: an hour of 15 s.
	nodeMemory = 240
	// fullRound is how long a reading has to be the mean over to count in full.
	// What the model misses (temperature, other devices) changes slowly: many
	// short readings say no more than one long.
	fullRound = 15.0
	// formError is the relative error of a change that remains however much is
	// learned: what a core costs depends on its clock, on its sibling, on what it
	// computes and on which others are awake, and no linear model has that. With
	// 0.3, nine of ten simulated nodes, which have these effects, are within two
	// standard errors of what a change saved on them; test/simulated holds that.
	// They were off by 18 to 51 % (root of the mean square of a fleet), 25 % in the
	// middle. Of the studies' host, the prior misses the dynamic power by 13 %, at
	// most by 25 %.
	formError = 0.3
	// accuracyMemory is how many readings the accuracy is a mean over.
	accuracyMemory = 100
	// leastNoise is far below what any meter of a node resolves.
	leastNoise = units.Watts(0.01)
)

// NodeModel learns what the power of one node depends on. It is used by one
// goroutine at a time.
type NodeModel struct {
	estimator *ridge
	// errors is the exponential mean of relative errors of samples readings.
	errors  float64
	samples int
}

// Accuracy says how well a model predicted what it had not seen yet.
type Accuracy struct {
	// MeanRelativeError is the mean of |predicted - measured| / measured over the
	// newest readings, each predicted before it was learned from. One reading
	// counts for 1 (100 %) at most.
	MeanRelativeError float64
	// Samples is how many readings there were.
	Samples int
	// Residual is the standard deviation of measured power around the model.
	Residual units.Watts
}

// NewNodeModel returns a model that knows only its prior.
func NewNodeModel(prior NodePrior) *NodeModel {
	return &NodeModel{estimator: newRidge(prior.Mean.array(), prior.StdDev.array(), float64(max(leastNoise, prior.Noise)), nodeMemory)}
}

// Update learns from a measured power, the mean over some seconds during which
// the load was the mean.
func (m *NodeModel) Update(load Load, watts units.Watts, seconds float64) {
	x := explain(load)
	predicted, _ := m.estimator.predict(x)
	m.samples++
	miss := min(1, math.Abs(predicted-float64(watts))/float64(max(watts, leastNoise)))
	m.errors += (miss - m.errors) / float64(min(m.samples, accuracyMemory))
	m.estimator.update(x, float64(watts), min(1, seconds/fullRound))
}

// Predict returns the power at a load. Its standard error has both what is not
// known of the coefficients and how far readings scatter around the model: a
// node's temperature, and the kind of work that it does, are no terms of it.
func (m *NodeModel) Predict(load Load) Estimate {
	x := explain(load)
	estimate := m.estimate(x)
	estimate.StdErr = units.Watts(math.Hypot(float64(estimate.StdErr), math.Sqrt(m.estimator.variance)))
	return estimate
}

// Change returns by how much the power changes from one load to another: less
// than zero is a saving. What both have in common cancels out of the error. The
// error is that of the coefficients and that of the model's form, 30 % of the
// change.
func (m *NodeModel) Change(from, to Load) Estimate {
	x := explain(to)
	before := explain(from)
	for i := range x {
		x[i] -= before[i]
	}
	change := m.estimate(x)
	change.StdErr = units.Watts(math.Hypot(float64(change.StdErr), formError*float64(change.Watts)))
	return change
}

func (m *NodeModel) estimate(x [terms]float64) Estimate {
	mean, stdErr := m.estimator.predict(x)
	return Estimate{Watts: units.Watts(mean), StdErr: units.Watts(stdErr)}
}

// Coefficients returns what the power is made of, as far as is known. None is
// negative.
func (m *NodeModel) Coefficients() Coefficients {
	c := m.estimator.coefficients()
	return Coefficients{
		Idle:         units.Watts(c[0]),
		PerBusyCore:  units.Watts(c[1]),
		PerWakeUp:    units.Joules(c[2]),
		PerAwakeCore: units.Watts(c[3]),
	}
}

// Accuracy returns how well the model predicted so far.
func (m *NodeModel) Accuracy() Accuracy {
	return Accuracy{MeanRelativeError: m.errors, Samples: m.samples, Residual: units.Watts(math.Sqrt(m.estimator.variance))}
}

// explain returns the model's terms at a load.
func explain(load Load) [terms]float64 {
	return [terms]float64{1, float64(load.BusyCores), float64(load.WakeUps), float64(load.AwakeCores)}
}
