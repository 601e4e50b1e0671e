package main

import (
	"fmt"

	"github.com/joulevirt/joulevirt/internal/power/curve"
	"github.com/joulevirt/joulevirt/internal/power/prior"
	"github.com/joulevirt/joulevirt/internal/units"
)

// describeBuffering compares the savings with the fit of each workload, with the
// one prior for all, and checks what was not fitted: wall power.
func (e *effectFit) describeBuffering(samples, packages []buffered, fit bufferingFit, node *nodeFit) {
	var at []string
	var measured, own, common []float64
	for _, b := range packages {
		at = append(at, b.at())
		measured = append(measured, b.dynamicShare(node.idle))
		own = append(own, fit.most[b.workload]*saturation(b.windowUS, fit.half))
		common = append(common, e.buffering.Most.Value*saturation(b.windowUS, fit.half))
	}
	parameters := len(fit.most) + 1
	e.fits = append(e.fits, goodness(subject{
		table: tableBuffering, quantity: "share of dynamic package power saved, each workload's own most", unit: "1",
		values: len(packages), parameters: parameters,
		note: "the idle power is that of the other study's host of the same model",
	}, at, measured, own), goodness(subject{
		table: tableBuffering, quantity: "share of dynamic package power saved, one prior for all", unit: "1",
		values: len(packages), parameters: 2, note: "the standard deviation of the prior is the spread of the workloads",
	}, at, measured, common))

	var wallAt []string
	var wall, predicted []float64
	for _, b := range samples {
		if b.meter != "wall" || b.base == 0 {
			continue
		}
		base := (b.base - node.study.WallIdle.Value) / node.study.WallSlope.Value
		share := e.buffering.Most.Value * saturation(b.windowUS, fit.half)
		wallAt = append(wallAt, b.at())
		wall = append(wall, b.saved*b.base)
		predicted = append(predicted, share*(base-node.idle)*node.study.WallSlope.Value)
	}
	e.fits = append(e.fits, goodness(subject{
		table: tableBuffering, quantity: "wall power saved", unit: "W", values: len(wall),
		note: "a check, not fitted; fixed work (rubbos) is left out, its power is not given",
	}, wallAt, wall, predicted))
}

// checkFlood compares the counters under a flood with the prior of buffering.
func (e *effectFit) checkFlood(t *table) error {
	const window = 500
	share := e.buffering.Most.Value * saturation(window, e.buffering.Half.Value)
	var at []string
	var measured, predicted []float64
	for _, metric := range []string{"context_switches", "irqs_per_s", "llc_references"} {
		r, err := t.find("metric=" + metric)
		if err != nil {
			return err
		}
		counted, err := r.numbers("kvm", "kvm_buffered_500us")
		if err != nil {
			return err
		}
		if !(counted[0] > counted[1]) {
			return fmt.Errorf("table %s: line %d: buffering saves nothing", t.name, r.line)
		}
		at = append(at, metric)
		measured = append(measured, 1-counted[1]/counted[0])
		predicted = append(predicted, share)
	}
	e.fits = append(e.fits, goodness(subject{
		table: tableFlood, quantity: "share of events saved at 500 us", unit: "1", values: len(measured),
		note: "a check, not fitted: another processor, and a flood",
	}, at, measured, predicted))
	return nil
}

const (
	// synBytes is a SYN's frame on the wire, and so is the answer's.
	synBytes = 64
	// bufferingMegabits is what iperf moved in the study of buffering.
	bufferingMegabits = 940
)

// checkCurves compares curves and power with tables that were not fitted.
func checkCurves(t tables, c *curveFit, node *nodeFit) ([]prior.Fit, error) {
	flood, err := checkFloodCPU(t.byName[tableFloodCPU], c)
	if err != nil {
		return nil, err
	}
	var at []string
	var measured, predicted []float64
	for _, workload := range []string{"iperf_rx_940mbps", "iperf_tx_940mbps"} {
		r, err := t.byName[tableBuffering].find("workload="+workload, "meter=rapl", "window_us=0")
		if err != nil {
			return nil, err
		}
		watts, err := r.number("value")
		if err != nil {
			return nil, err
		}
		at = append(at, workload)
		measured = append(measured, watts)
		predicted = append(predicted, node.curvePrediction(c.coresMore, c.wakeUps, sample{megabits: []float64{bufferingMegabits}}))
	}
	const vms, each = 10, 90
	r, err := t.byName[tableAffinity].find("setup=random")
	if err != nil {
		return nil, err
	}
	watts, err := r.number("rapl_w")
	if err != nil {
		return nil, err
	}
	ten := sample{}
	for range vms {
		ten.megabits = append(ten.megabits, each)
	}
	onXen := c.coresOne
	for i := range onXen {
		onXen[i] *= c.xen.Value
	}
	return append(flood, goodness(subject{
		table: tableBuffering, quantity: "package power from traffic alone", unit: "W", values: len(measured),
		note: "a check, not fitted: VMs with 4 vCPUs, predicted by the curve of those with 2",
	}, at, measured, predicted), goodness(subject{
		table: tableAffinity, quantity: "package power from traffic alone", unit: "W", values: 1,
		note: "a check, not fitted: 10 VMs at 90 Mbit/s on Xen, their vCPUs are not given; predicted by the curve of VMs with 1",
	}, []string{"random"}, []float64{watts}, []float64{node.curvePrediction(onXen, c.wakeUps, ten)})), nil
}

// checkFloodCPU compares the CPU time of a SYN flood, whose packets are a
// twentieth of those that the curves were fitted to.
func checkFloodCPU(t *table, c *curveFit) ([]prior.Fit, error) {
	r, err := t.find("system=kvm")
	if err != nil {
		return nil, err
	}
	var at []string
	var measured, predicted []float64
	for _, megabits := range []float64{10, 100} {
		column := fmt.Sprintf("syn_%vmbps", megabits)
		cores, err := r.number(column)
		if err != nil {
			return nil, err
		}
		bits := 2 * megabits * bitsPerMegabit // the answers are as large
		rate := curve.Rate{Packets: units.PacketsPerSecond(bits / bitsPerByte / synBytes), Bits: units.BitsPerSecond(bits)}
		at = append(at, column)
		measured = append(measured, cores/percent)
		predicted = append(predicted, cost(c.coresMore, curve.At(rate)))
	}
	return []prior.Fit{goodness(subject{
		table: tableFloodCPU, quantity: "CPU time of a SYN flood", unit: "cores", values: len(measured),
		note: "a check, not fitted: every SYN of 64 bytes answered, on an older processor",
	}, at, measured, predicted)}, nil
}
