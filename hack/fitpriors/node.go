package main

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat"

	"github.com/joulevirt/joulevirt/internal/power/curve"
	"github.com/joulevirt/joulevirt/internal/power/prior"
)

// What no table can tell, and why it is what it is. The standard deviations are
// for hosts of which nothing is known.
const (
	// studyCores is the number of cores of the studies' hosts.
	studyCores = 4
	// perWakeUp, in joules: leaving a sleep state takes some 10 us at the power
	// of a core. Deep states take ten times that.
	perWakeUp, perWakeUpStdDev = 1e-5, 2e-5
	// perAwake, in watts: a core in its first sleep state over one in its
	// deepest, at most 1 to 2 W on server processors.
	perAwake, perAwakeStdDev = 0.3, 0.7
	// relativeStdDev of what a busy core adds. Between processors it differs by
	// factors: 3 W on servers with many cores, 15 W on a desktop's few.
	relativeStdDev = 0.5
	// noise, in watts: the scatter of 1 s means around the model.
	noise, noiseStdDev = 0.5, 0.5
	// coresExponent: a busy core adds 16 W on 4 cores at 95 W, and some 5 to 8 W
	// on 64 cores at 280 W.
	coresExponent, coresExponentStdDev = 0.25, 0.15
)

// powerSample is one published power with the load that it had.
type powerSample struct {
	at string
	// rapl and wall are watts; wall is 0 when not given.
	rapl, wall float64
	// cores busy and wake-ups per second; none on an idle host.
	cores, wakeUps float64
}

// fixed is the part of a power that is not of the busy cores. With any of the
// studies' loads, spread over four cores, each is used for more than a tenth of
// the time: all are awake.
func (s powerSample) fixed(idle float64) float64 {
	if s.cores == 0 {
		return idle
	}
	return idle + perAwake*studyCores + perWakeUp*s.wakeUps
}

// readXenPower reads the table of CPU time and power on Xen. How often Xen's
// host woke up is not in it; the rates are those of the KVM table, and so are
// the wake-ups taken to be.
func readXenPower(t *table, wakeUps []sample) ([]powerSample, error) {
	var samples []powerSample
	for _, r := range t.rows {
		megabits, err := r.numbers("vm1_mbps", "vm2_mbps", "vm3_mbps")
		if err != nil {
			return nil, err
		}
		watts, err := r.numbers("rapl_w", "wall_w")
		if err != nil {
			return nil, err
		}
		s := powerSample{at: "xen " + list(megabits), rapl: watts[0], wall: watts[1]}
		dom0, given, err := r.optional("dom0_cpu_pct")
		if err != nil {
			return nil, err
		}
		if given {
			guests, err := r.number("domu_cpu_pct")
			if err != nil {
				return nil, err
			}
			s.cores = (dom0 + guests) / percent
			if s.wakeUps, err = valueAt(wakeUps, list(megabits)); err != nil {
				return nil, err
			}
		}
		samples = append(samples, s)
	}
	return samples, nil
}

func readKVMPower(t *table, s curveSamples) ([]powerSample, error) {
	var samples []powerSample
	for _, r := range t.rows {
		given, err := r.numbers("mbps", "rapl_w")
		if err != nil {
			return nil, err
		}
		one := powerSample{at: "kvm " + list(given[:1]), rapl: given[1]}
		if one.wall, _, err = r.optional("wall_w"); err != nil {
			return nil, err
		}
		if given[0] > 0 {
			at := list([]float64{0, 0, given[0]})
			if one.cores, err = valueAt(s.kvm, at); err != nil {
				return nil, err
			}
			if one.wakeUps, err = valueAt(s.kvmWakeUps, at); err != nil {
				return nil, err
			}
		}
		samples = append(samples, one)
	}
	return samples, nil
}

func valueAt(samples []sample, at string) (float64, error) {
	for _, s := range samples {
		if s.at == at {
			return s.value, nil
		}
	}
	return 0, fmt.Errorf("table %s: no row with the rates %s", tableKVM, at)
}

// nodeFit is the power of the studies' host.
type nodeFit struct {
	study        prior.Study
	idle, perCPU float64
	fits         []prior.Fit
}

// predict returns the power of the packages at a load.
func (n *nodeFit) predict(s powerSample) float64 { return s.fixed(n.idle) + n.perCPU*s.cores }

// fitNode fits what an idle host and a busy core draw, given what wake-ups and
// awake cores do. Left free, these come out as zero: the tables cannot tell them
// from busy cores, which go with both.
func fitNode(xen, kvm []powerSample) (nodeFit, error) {
	var n nodeFit
	var idles, cores, dynamic []float64
	all := append(append([]powerSample(nil), xen...), kvm...)
	for _, s := range all {
		if s.cores == 0 {
			idles = append(idles, s.rapl)
		}
	}
	if len(idles) == 0 || len(idles) == len(all) {
		return n, fmt.Errorf("tables %s and %s: no idle host, or only idle ones", tableXen, tableKVMPower)
	}
	n.idle = stat.Mean(idles, nil)
	for _, s := range all {
		if s.cores > 0 {
			cores = append(cores, s.cores)
			dynamic = append(dynamic, s.rapl-s.fixed(n.idle))
		}
	}
	_, n.perCPU = stat.LinearRegression(cores, dynamic, nil, true)

	var rapl, wall []float64
	for _, s := range all {
		if s.wall > 0 {
			rapl, wall = append(rapl, s.rapl), append(wall, s.wall)
		}
	}
	wallIdle, wallSlope := stat.LinearRegression(rapl, wall, nil, false)
	n.study = prior.Study{
		Cores: studyCores,
		// Platform power may be all that is metered: its idle part, or a server's
		// larger one, is within the standard deviation.
		Idle:          fitted(n.idle, wallIdle, "W"),
		PerBusyCore:   fitted(n.perCPU, relativeStdDev*n.perCPU, "W per core"),
		PerWakeUp:     chosen(perWakeUp, perWakeUpStdDev, "J"),
		PerAwake:      chosen(perAwake, perAwakeStdDev, "W per core"),
		Noise:         chosen(noise, noiseStdDev, "W"),
		CoresExponent: chosen(coresExponent, coresExponentStdDev, "1"),
		WallIdle:      fitted(wallIdle, deviation(rapl, wall, wallIdle, wallSlope), "W"),
		WallSlope:     fitted(wallSlope, relativeStdDev*math.Abs(wallSlope-1), "1"),
	}
	n.describe(xen, kvm, wallIdle, wallSlope)
	return n, nil
}

// deviation is the standard deviation of what a line leaves.
func deviation(x, y []float64, intercept, slope float64) float64 {
	left := make([]float64, len(x))
	for i := range x {
		left[i] = y[i] - intercept - slope*x[i]
	}
	return stat.StdDev(left, nil)
}

func (n *nodeFit) describe(xen, kvm []powerSample, wallIdle, wallSlope float64) {
	values := len(xen) + len(kvm)
	of := func(table, quantity, note string) subject {
		return subject{table: table, quantity: quantity, unit: "W", note: note, values: values, parameters: 2}
	}
	add := func(subject subject, samples []powerSample, measured, predicted func(powerSample) float64) {
		var at []string
		var ys, fs []float64
		for _, s := range samples {
			if measured(s) > 0 {
				at, ys, fs = append(at, s.at), append(ys, measured(s)), append(fs, predicted(s))
			}
		}
		n.fits = append(n.fits, goodness(subject, at, ys, fs))
	}
	rapl := func(s powerSample) float64 { return s.rapl }
	wall := func(s powerSample) float64 { return s.wall }
	add(of(tableXen, "package power from measured CPU time", "wake-ups taken from the KVM table at the same rates"), xen, rapl, n.predict)
	add(of(tableKVMPower, "package power from measured CPU time", ""), kvm, rapl, n.predict)
	fromRAPL := func(s powerSample) float64 { return wallIdle + wallSlope*s.rapl }
	onWall := of(tableXen, "wall power from package power", "a straight line through this table and "+tableKVMPower)
	onWall.values = values - 1 // one has no wall power
	add(onWall, xen, wall, fromRAPL)
	onWall.table, onWall.note = tableKVMPower, "one value of the line above: R2 is not defined"
	add(onWall, kvm, wall, fromRAPL)
}

// curvePrediction returns the packages' power that the curves and the node's
// coefficients together predict for VMs.
func (n *nodeFit) curvePrediction(cores, wakeUps curve.Terms, s sample) float64 {
	return n.predict(powerSample{cores: s.predict(cores), wakeUps: s.predict(wakeUps)})
}
