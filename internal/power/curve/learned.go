package curve

import (
	"errors"
	"fmt"

	"github.com/joulevirt/joulevirt/internal/power/lsq"
)

// Prior is what is known of a curve before anything is measured: coefficients
// and their standard deviations, in cores and in wake-ups per second.
type Prior struct {
	Cores, CoresStdDev     Terms
	WakeUps, WakeUpsStdDev Terms
	// CoresForm and WakeUpsForm are relative errors of the form of curve: what
	// remains however much is learned, because no host is of that form.
	CoresForm, WakeUpsForm float64
}

const (
	// memory is how many VMs' full readings (fullSeconds) a curve remembers: those
	// of most of a day of a lone VM, of an hour of 20.
	memory = 1000
	// coresNoise and wakeUpsNoise are the least standard deviations of an
	// observation: a guest's own work comes and goes in such steps.
	coresNoise   = 0.02
	wakeUpsNoise = 200
	// excessPrior is what the convex part is before it is measured. With it, the
	// cost of a packet where a CPU is full (K/0.6) is twice the mean up to the
	// knee. No study has it; its standard deviation says so.
	excessPrior = 0.75
)

// learned is one curve.
type learned struct {
	key Key
	// cores and wakeUps are the coefficients of the terms that traffic causes.
	cores, wakeUps *lsq.Estimator
	// ownCores and ownWakeUps are those of the idle term: what VMs do apart from
	// their traffic, on average.
	ownCores, ownWakeUps *lsq.Estimator
	// excess is one coefficient: e of the package's doc comment.
	excess *lsq.Estimator
	knee   Knee
	// coresForm and wakeUpsForm are those of the prior.
	coresForm, wakeUpsForm float64
	// seconds of VMs behind the curve.
	seconds float64

	bands [numBands]band
	// follows is how signs of trouble follow traffic, and use what it says of
	// signVCPU and signVhost.
	follows slopes
	use     [signWait]trend
	// habits of VMs, by their names.
	habits map[string]*habit
	// batches of deviations below the knee, and last what is beyond it.
	batches [beyond + 1]batch
	// level is all readings since the last round that was learned from.
	level batch
	// waiting is how many batches hold something, turn the next to learn from.
	waiting, turn int
	// seen is the round of the newest observation.
	seen uint64
}

func newLearned(prior Prior) (*learned, error) {
	if !finite(prior.CoresForm) || !finite(prior.WakeUpsForm) {
		return nil, errors.New("the error of the form is negative or not finite")
	}
	c := &learned{
		knee:      Knee{Cause: CauseUnknown},
		coresForm: prior.CoresForm, wakeUpsForm: prior.WakeUpsForm,
		habits: map[string]*habit{},
	}
	c.judge()
	const idle, traffic = TermIdle, TermIdle + 1
	for _, one := range []struct {
		estimator     **lsq.Estimator
		of            string
		prior, stdDev []float64
		noise         float64
	}{
		{&c.cores, "CPU time", prior.Cores[traffic:], prior.CoresStdDev[traffic:], coresNoise},
		{&c.wakeUps, "wake-ups", prior.WakeUps[traffic:], prior.WakeUpsStdDev[traffic:], wakeUpsNoise},
		{&c.ownCores, "CPU time of an idle VM", prior.Cores[idle:traffic], prior.CoresStdDev[idle:traffic], coresNoise},
		{&c.ownWakeUps, "wake-ups of an idle VM", prior.WakeUps[idle:traffic], prior.WakeUpsStdDev[idle:traffic], wakeUpsNoise},
		{&c.excess, "excess", []float64{excessPrior}, []float64{excessPrior}, coresNoise},
	} {
		var err error
		*one.estimator, err = lsq.New(lsq.Options{Prior: one.prior, PriorStdDev: one.stdDev, Memory: memory, Noise: one.noise})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.of, err)
		}
	}
	return c, nil
}

// locate returns where a rate lies. As long as the knee is not known, the curve
// has none: what is beyond all that was seen is uncertain, and its standard
// error says so, but nothing says that it is worse.
func (c *learned) locate(rate Rate) position {
	if !c.knee.Known() {
		return locate(rate, 0)
	}
	return locate(rate, c.knee.Rate)
}

// observe takes an observation. It returns the deviations of its signs, and false
// when there are none yet.
func (c *learned) observe(o *Observation, seconds float64, round uint64) (sighting, bool) {
	c.seconds += seconds
	c.seen = round
	now := reading{where: c.locate(o.Rate), cores: float64(o.HostCores), wakeUps: float64(o.WakeUps)}
	c.level.add(&now, seconds)
	seen := sighting{curve: c, habit: c.habitOf(o.VM, round), now: signsOf(o), seconds: seconds}
	from, off, known := seen.habit.deviation(&now, &seen.now, seconds)
	if !known {
		return sighting{}, false
	}
	seen.from = off
	at := bandOf(o.Rate.Packets) / 2 * 2
	if from.where.terms[TermPackets] > 0 {
		at++
	}
	if c.knee.Known() && o.Rate.Packets > c.knee.Rate {
		at = beyond
	}
	if c.batches[at].weight == 0 {
		c.waiting++
	}
	c.batches[at].add(&from, seconds)
	return seen, true
}

// learn moves up to budget batches into the estimators, in turn, and finds the
// knee anew. What is left waits, and goes on summing up. It returns what is left
// of the budget.
func (c *learned) learn(budget int) int {
	for range c.batches {
		if budget == 0 || c.waiting == 0 {
			break
		}
		if b := &c.batches[c.turn]; b.weight > 0 {
			mean := b.mean()
			c.take(&mean, b.weight, c.turn == beyond)
			*b = batch{}
			c.waiting--
			budget--
		}
		c.turn = (c.turn + 1) % len(c.batches)
	}
	if c.level.weight > 0 {
		mean := c.level.mean()
		traffic := c.predictTraffic(&mean.where)
		one := [1]float64{mean.where.terms[TermIdle]}
		c.ownCores.Update(one[:], mean.cores-float64(traffic.Cores), c.level.weight)
		c.ownWakeUps.Update(one[:], mean.wakeUps-float64(traffic.WakeUps), c.level.weight)
		c.level = batch{}
	}
	c.judge()
	c.knee = findKnee(&c.follows, c.bands[:])
	return budget
}

// take learns from the mean of a batch of deviations: from one beyond the knee
// how much is in excess of the tangent, from others all else.
func (c *learned) take(mean *reading, weight float64, beyond bool) {
	over := [1]float64{c.over(&mean.where)}
	if beyond {
		tangent, _ := c.cores.Predict(mean.where.traffic())
		c.excess.Update(over[:], mean.cores-tangent, weight)
		return
	}
	// A VM's usual traffic may lie beyond the knee in part.
	excess, _ := c.excess.Predict(over[:])
	c.cores.Update(mean.where.traffic(), mean.cores-excess, weight)
	c.wakeUps.Update(mean.where.traffic(), mean.wakeUps, weight)
}

// over is what the excess coefficient is multiplied with.
func (c *learned) over(where *position) float64 {
	var coefficients Terms
	c.cores.Coefficients(coefficients[TermIdle+1:])
	return dot(&coefficients, &where.over)
}

// formError returns no cost, with the error of the form at a position, or at a
// sum of positions. No form is needed for an idle VM.
func (c *learned) formError(where *position) Cost {
	traffic := c.predictTraffic(where)
	return newCost(0, c.coresForm*float64(traffic.Cores), 0, c.wakeUpsForm*float64(traffic.WakeUps))
}

// predict returns the cost of a position, or of a difference of positions, as if
// the form were right.
func (c *learned) predict(where *position) Cost {
	idle := [1]float64{where.terms[TermIdle]}
	cores, coresErr := c.ownCores.Predict(idle[:])
	wakeUps, wakeUpsErr := c.ownWakeUps.Predict(idle[:])
	return c.predictTraffic(where).plus(newCost(cores, coresErr, wakeUps, wakeUpsErr))
}

// predictTraffic is predict without what an idle VM costs.
func (c *learned) predictTraffic(where *position) Cost {
	cores, coresErr := c.cores.Predict(where.traffic())
	wakeUps, wakeUpsErr := c.wakeUps.Predict(where.traffic())
	over := [1]float64{c.over(where)}
	excess, excessErr := c.excess.Predict(over[:])
	return newCost(cores+excess, hypotenuse(coresErr, excessErr), wakeUps, wakeUpsErr)
}
