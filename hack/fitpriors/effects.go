package main

import (
	"fmt"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/stat"

	"github.com/joulevirt/joulevirt/internal/power/prior"
)

// buffered is one workload with one meter at one window.
type buffered struct {
	workload, meter string
	windowUS        float64
	// saved is the share of the whole power or energy.
	saved float64
	// base is the power without buffering in watts, 0 for fixed work.
	base float64
}

// at names the row.
func (b buffered) at() string {
	return b.workload + " " + b.meter + " " + strconv.FormatFloat(b.windowUS, 'g', -1, 64) + "us"
}

// readBuffering reads the savings, of which some are given as such and some as
// the values with and without.
func readBuffering(t *table) ([]buffered, error) {
	var out []buffered
	unbuffered := map[string]float64{}
	inWatts := map[string]bool{}
	for _, r := range t.rows {
		window, err := r.number("window_us")
		if err != nil {
			return nil, err
		}
		value, err := r.number("value")
		if err != nil {
			return nil, err
		}
		words, err := r.texts("workload", "meter", "unit")
		if err != nil {
			return nil, err
		}
		workload, meter, unit := words[0], words[1], words[2]
		b := buffered{workload: workload, windowUS: window}
		switch {
		case unit == "pct":
			b.meter = strings.TrimSuffix(meter, "_saving_pct")
			b.saved = value / percent
		case window == 0:
			unbuffered[workload+meter], inWatts[workload+meter] = value, unit == "w"
			continue
		default:
			b.meter = meter
			b.saved = 1 - value/unbuffered[workload+meter]
		}
		key := b.workload + b.meter
		if !(unbuffered[key] > 0) || !(b.saved < 1) {
			return nil, fmt.Errorf("table %s: line %d: no value without buffering comes before it, or it saves all", t.name, r.line)
		}
		if inWatts[key] {
			b.base = unbuffered[key]
		}
		out = append(out, b)
	}
	return out, nil
}

// dynamicShare returns what was saved of the power above idle.
func (b buffered) dynamicShare(idle float64) float64 { return b.saved * b.base / (b.base - idle) }

// longestHalf is the longest half-saturation window that is tried, in
// microseconds: that of a saving that goes straight up to the longest window.
const longestHalf = 1000

// bufferingFit is the share that each workload saves, most * w / (w + half),
// with one half for all.
type bufferingFit struct {
	half float64
	most map[string]float64
}

// fitBuffering looks at each half window, to the microsecond, and takes what
// leaves the least squares.
func fitBuffering(samples []buffered, idle float64) bufferingFit {
	var best bufferingFit
	least := -1.0
	for half := 1.0; half <= longestHalf; half++ {
		fit := bufferingFit{half: half, most: map[string]float64{}}
		left := 0.0
		for _, workload := range workloads(samples) {
			var x, y []float64
			for _, b := range samples {
				if b.workload == workload {
					x, y = append(x, saturation(b.windowUS, half)), append(y, b.dynamicShare(idle))
				}
			}
			_, fit.most[workload] = stat.LinearRegression(x, y, nil, true)
			for i := range x {
				left += (y[i] - fit.most[workload]*x[i]) * (y[i] - fit.most[workload]*x[i])
			}
		}
		if least < 0 || left < least {
			best, least = fit, left
		}
	}
	return best
}

func saturation(window, half float64) float64 { return window / (window + half) }

// workloads in the order of the table.
func workloads(samples []buffered) []string {
	var names []string
	seen := map[string]bool{}
	for _, b := range samples {
		if !seen[b.workload] {
			names, seen[b.workload] = append(names, b.workload), true
		}
	}
	return names
}

// longestWindow of the studies in microseconds.
const longestWindow = 1000

// effectFit is what buffering and affinity save.
type effectFit struct {
	buffering prior.Buffering
	affinity  prior.Affinity
	sriov     prior.SRIOV
	fits      []prior.Fit
}

func fitEffects(t tables, node *nodeFit) (effectFit, error) {
	var e effectFit
	samples, err := readBuffering(t.byName[tableBuffering])
	if err != nil {
		return e, err
	}
	var packages []buffered
	for _, b := range samples {
		if b.meter == "rapl" && b.base > node.idle {
			packages = append(packages, b)
		}
	}
	fit := fitBuffering(packages, node.idle)
	var most []float64
	for _, workload := range workloads(packages) {
		most = append(most, fit.most[workload])
	}
	mean, spread := stat.MeanStdDev(most, nil)
	e.buffering = prior.Buffering{
		Most:    fitted(mean, spread, "1"),
		Half:    fitted(fit.half, fit.half, "us"),
		Longest: chosen(longestWindow, 0, "us"),
	}
	e.describeBuffering(samples, packages, fit, node)
	if err := e.checkFlood(t.byName[tableFlood]); err != nil {
		return e, err
	}
	if err := e.fitAffinity(t.byName[tableAffinity], node.idle); err != nil {
		return e, err
	}
	return e, e.fitSRIOV(t.byName[tableOverhead])
}

// fitAffinity takes the one pair that there is. Its uncertainty cannot be
// fitted: half of the effect is chosen, because pinning badly was seen to cost
// more than not pinning, and the best of a study's set-ups is rather lucky.
func (e *effectFit) fitAffinity(t *table, idle float64) error {
	watts := map[string]float64{}
	for _, setup := range []string{"random", "pinned"} {
		r, err := t.find("setup=" + setup)
		if err != nil {
			return err
		}
		if watts[setup], err = r.number("rapl_w"); err != nil {
			return err
		}
		if !(watts[setup] > idle) {
			return fmt.Errorf("table %s: line %d: %v W is not above an idle host's %v", t.name, r.line, watts[setup], idle)
		}
	}
	share := 1 - (watts["pinned"]-idle)/(watts["random"]-idle)
	// Power is published to fall from random over separated to pinned on KVM, without
	// a figure for separated: the middle, whose standard deviation leads to both ends.
	e.affinity = prior.Affinity{Pinned: fitted(share, share/2, "1"), Separated: chosen(share/2, share/2, "1")}
	e.fits = append(e.fits, goodness(
		subject{table: tableAffinity, quantity: "package power with pinned vCPUs", unit: "W", values: 1, parameters: 1,
			note: "one pair for one parameter: it is met whatever the model; the standard deviation, half of the effect, is chosen"},
		[]string{"pinned"}, []float64{watts["pinned"]}, []float64{idle + (1-share)*(watts["random"]-idle)}))
	return nil
}

// fitSRIOV compares the two devices in both directions.
func (e *effectFit) fitSRIOV(t *table) error {
	ratios := map[string][]float64{}
	for _, direction := range []string{"rx", "tx"} {
		for _, column := range []string{"cycles", "context_switches"} {
			var values [2]float64
			for i, nic := range []string{"sriov", "virtio"} {
				r, err := t.find("direction="+direction, "nic="+nic)
				if err != nil {
					return err
				}
				if values[i], err = r.number(column); err != nil {
					return err
				}
			}
			ratios[column] = append(ratios[column], values[0]/values[1])
		}
	}
	figure := func(column string) prior.Figure {
		mean, spread := stat.MeanStdDev(ratios[column], nil)
		return fitted(mean, max(spread, mean/4), "1")
	}
	e.sriov = prior.SRIOV{Cores: figure("cycles"), WakeUps: figure("context_switches")}
	return nil
}
