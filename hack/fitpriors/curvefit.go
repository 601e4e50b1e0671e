package main

import (
	"math"
	"slices"

	"github.com/joulevirt/joulevirt/internal/power/curve"
	"github.com/joulevirt/joulevirt/internal/power/prior"
)

// What no table of curves can tell.
const (
	// idleCores and idleWakeUps of a VM without traffic: a guest's housekeeping.
	// What else guests compute is within the standard deviation.
	idleCores, idleCoresStdDev     = 0.01, 0.5
	idleWakeUps, idleWakeUpsStdDev = 100, 2000
	// termStdDev of a coefficient, relative to it: Xen and KVM differ by a
	// factor of two, and processors do.
	termStdDev = 0.5
	// leastStdDev is what a coefficient's term may at least contribute at 900
	// Mbit/s, relative to the whole cost there: one that was fitted as zero is
	// not known to be.
	leastStdDev = 0.1
	// full is the rate that the standard deviations refer to.
	full = 900
)

// curveFit is the curves of VMs on KVM.
type curveFit struct {
	curves prior.Curves
	// coresOne and coresMore are those of VMs with one vCPU and with more.
	coresOne, coresMore, wakeUps curve.Terms
	xen                          prior.Figure
	fits                         []prior.Fit
}

// fitCurves fits three curves: the CPU time of VMs with one vCPU (on Xen only,
// brought to KVM by the ratio of the two), that of VMs with more (both
// hypervisors together), and their wake-ups (KVM only).
func fitCurves(s curveSamples) (curveFit, error) {
	var c curveFit
	var err error
	if c.xen, err = xenOverKVM(s); err != nil {
		return c, err
	}
	toKVM := 1 / c.xen.Value
	if c.coresOne, err = fitTerms(scaled(s.skew, toKVM), copyCost); err != nil {
		return c, err
	}
	more := append(append(append([]sample(nil), s.kvm...), scaled(s.xen, toKVM)...), s.low...)
	if c.coresMore, err = fitTerms(more, copyCost); err != nil {
		return c, err
	}
	wakeUps := append(append([]sample(nil), s.kvmWakeUps...), s.lowWakeUps...)
	if c.wakeUps, err = fitTerms(wakeUps, 0); err != nil {
		return c, err
	}
	c.curves = prior.Curves{
		CoresOne:    figures(c.coresOne, idleCores, idleCoresStdDev, "cores"),
		CoresMore:   figures(c.coresMore, idleCores, idleCoresStdDev, "cores"),
		WakeUpsOne:  figures(c.wakeUps, idleWakeUps, idleWakeUpsStdDev, "1/s"),
		WakeUpsMore: figures(c.wakeUps, idleWakeUps, idleWakeUpsStdDev, "1/s"),
		Xen:         c.xen,
	}
	c.describe(s, len(more), len(wakeUps))
	c.curves.CoresForm = c.form(cpu, tableSkew, tableXen, tableKVM)
	c.curves.WakeUpsForm = c.form(wakeUpCount, tableKVM)
	return c, nil
}

// figures adds the standard deviations.
func figures(c curve.Terms, idle, idleStdDev float64, unit string) prior.Curve {
	whole := sample{megabits: []float64{full}}
	terms, cost := whole.terms(), whole.predict(c)
	figure := func(term int, per string) prior.Figure {
		return fitted(c[term], math.Max(termStdDev*c[term], leastStdDev*cost/terms[term]), unit+per)
	}
	bits := figure(curve.TermBits, " per Gbit/s")
	bits.Origin = prior.Chosen
	return prior.Curve{
		Idle:    chosen(idle, idleStdDev, unit),
		Packets: figure(curve.TermPackets, " per 100000 packets/s"),
		Few:     figure(curve.TermFew, ""),
		Some:    figure(curve.TermSome, ""),
		Many:    figure(curve.TermMany, ""),
		Bits:    bits,
	}
}

// form returns the relative error with which curves miss tables that they were
// not fitted to: that of the tables they were fitted to, which is smaller by the
// root of degrees of freedom over values.
func (c *curveFit) form(quantity string, tables ...string) prior.Figure {
	sum, n := 0.0, 0.0
	for _, fit := range c.fits {
		if fit.Quantity != quantity || !slices.Contains(tables, fit.Table) {
			continue
		}
		flattered := float64(fit.Values) / float64(fit.DegreesOfFreedom)
		for _, point := range fit.Points {
			sum += point.RelativeError * point.RelativeError * flattered
			n++
		}
	}
	return fitted(math.Sqrt(sum/n), 0, "1")
}

// coefficients that fitTerms fits.
const coefficients = 4

// The quantities of curves.
const (
	cpu         = "CPU time"
	wakeUpCount = "wake-ups"
)

func (c *curveFit) describe(s curveSamples, more, wakeUps int) {
	onXen := func(t curve.Terms) curve.Terms {
		for i := range t {
			t[i] *= c.xen.Value
		}
		return t
	}
	add := func(of subject, samples []sample, t curve.Terms) {
		c.fits = append(c.fits, curveGoodness(of, samples, t))
	}
	joint := "fitted together with the other hypervisor's table and the one at 10 Mbit/s; one parameter is the ratio of the two"
	add(subject{table: tableSkew, quantity: cpu, unit: "cores", values: len(s.skew), parameters: coefficients},
		s.skew, onXen(c.coresOne))
	add(subject{table: tableXen, quantity: cpu, unit: "cores", values: more, parameters: coefficients + 1, note: joint},
		s.xen, onXen(c.coresMore))
	add(subject{table: tableKVM, quantity: cpu, unit: "cores", values: more, parameters: coefficients + 1, note: joint},
		s.kvm, c.coresMore)
	add(subject{table: tableOverhead, quantity: cpu, unit: "cores", values: more, parameters: coefficients + 1,
		note: "fitted together with the tables at 900 Mbit/s, in which errors of this size do not show"}, s.low, c.coresMore)
	add(subject{table: tableKVM, quantity: wakeUpCount, unit: "1/s", values: wakeUps, parameters: coefficients,
		note: "no concave curve meets all three: 200+700 Mbit/s would need at least 2/3 of 900 and a third of 300+300+300, which is 20 % more"},
		s.kvmWakeUps, c.wakeUps)
	add(subject{table: tableOverhead, quantity: wakeUpCount, unit: "1/s", values: wakeUps, parameters: coefficients,
		note: "per bit there are half as many as at 900 Mbit/s: wake-ups are not concave down there, the curve is"},
		s.lowWakeUps, c.wakeUps)
}
