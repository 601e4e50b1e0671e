package trials

import (
	"fmt"
	"math"
)

// look is when a trial is judged, and how surely.
type look struct {
	// pairs of slots that each unit has done on average.
	pairs int
	// p is the one-sided probability with which a lever that saves nothing passes this look.
	p float64
}

// looks are spaced by doubling. Together they adopt a lever that saves nothing in 2.05 % of trials.
func looks() []look { return []look{{4, 0.0040}, {8, 0.0050}, {16, 0.0065}, {32, 0.0100}} }

const (
	// leastFreedom is the least number of degrees of freedom that a look needs.
	leastFreedom = 4
	// leastSaving is the logarithm of joules of a lever that saves 0.5 %: one that surely saves
	// less is rejected.
	leastSaving = -0.0050125
	// mayLose is the probability of losing work below which a lever is not adopted at a look.
	mayLose = 0.10
	// leastLoss is the logarithm of a loss of 1 % of the work: less of it cannot save the 0.5 % of
	// energy that a lever has to, and is found anywhere with data enough.
	leastLoss = -0.01
	// plainTail is what a plain interval of 95 % leaves out on each side.
	plainTail = 0.025
)

// Decision is what a look says.
type Decision string

// The decisions. Empty: the trial goes on.
const (
	Adopt     Decision = "Adopt"
	Reject    Decision = "Reject"
	LosesWork Decision = "LosesWork"
	Undecided Decision = "Undecided"
)

// Effect is a lever's, as the logarithm of joules for the same work with it over without it.
type Effect struct {
	Log float64 `json:"log"`
	// Low and High are the ends of the interval of 95 %.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Pairs of slots that each of the Units did on average.
	Pairs int `json:"pairs"`
	Units int `json:"units"`
}

// verdict of a look.
type verdict struct {
	Decision
	Effect
	// message says why.
	message string
}

// judge decides at a look about one lever of several, by the rows of all units. False: too little
// is known to look.
func judge(rows []row, lever, levers, at int) (v verdict, ok bool) {
	joules := func(r *row) float64 { return r.joules }
	demand := func(r *row) float64 { return r.demand }
	thetas, _, ok := regress(rows, levers, joules, demand, true)
	if !ok {
		return v, false
	}
	theta := thetas[lever]
	now := looks()[at]
	t := critical(now.p, theta.freedom)
	v.Log = theta.log
	loses, words := losesWork(rows, lever, levers)
	switch {
	case loses <= now.p:
		v.Decision, v.message = LosesWork, words
	case theta.log <= -t*theta.stdErr && loses < mayLose:
		v.message = "it saves energy, but may lose work: " + words
	case theta.log <= -t*theta.stdErr:
		v.Decision = Adopt
	case theta.log-leastSaving >= t*theta.stdErr:
		v.Decision, v.message = Reject, "it saves less than 0.5 %"
	}
	if v.Decision == "" && at == len(looks())-1 {
		v.Decision = Undecided
	}
	if v.Low, v.High = interval(&theta, v.Decision, at); v.Decision == Reject && v.Low > 0 {
		v.message = "it costs energy"
	}
	return v, true
}

// losesWork returns the least probability of what was seen if the lever lost no work: of the bytes
// that were delivered, and of those that VMs sent for the same demand.
func losesWork(rows []row, lever, levers int) (p float64, message string) {
	working := make([]row, 0, len(rows))
	for i := range rows {
		if rows[i].works {
			working = append(working, rows[i])
		}
	}
	p = 1
	for _, guard := range []struct {
		of   func(*row) float64
		by   func(*row) float64
		what string
	}{
		{func(r *row) float64 { return r.delivered }, nil, "VMs' bytes"},
		{func(r *row) float64 { return r.sent }, func(r *row) float64 { return r.demand }, "bytes that VMs send for the same demand"},
	} {
		thetas, _, ok := regress(working, levers, guard.of, guard.by, false)
		if !ok || thetas[lever].stdErr == 0 {
			continue
		}
		if one := thetas[lever].below(0); one < p && thetas[lever].log < leastLoss {
			p, message = one, fmt.Sprintf("%s change by %+.1f %%", guard.what, 100*math.Expm1(thetas[lever].log))
		}
	}
	return p, message
}

// interval of 95 %. A trial that stops at a boundary stops there too often by luck: on that side
// the interval reaches as far as the look's own test.
func interval(e *estimate, decision Decision, at int) (low, high float64) {
	down, up := critical(plainTail, e.freedom), critical(plainTail, e.freedom)
	if strict := critical(looks()[at].p, e.freedom); at > 0 {
		switch {
		case decision == Adopt, decision == Undecided && e.log < 0:
			up = strict
		case decision == Reject, decision == Undecided:
			down = strict
		}
	}
	return e.log - down*e.stdErr, e.log + up*e.stdErr
}
