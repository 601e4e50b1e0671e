package main

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"github.com/joulevirt/joulevirt/internal/power/curve"
	"github.com/joulevirt/joulevirt/internal/power/prior"
	"github.com/joulevirt/joulevirt/internal/units"
)

// The tables give megabits per second of payload. What a tap counts depends on
// how they were cut into packets, which the studies do not say: full Ethernet
// frames are assumed, and a bare acknowledgement for every second one.
const (
	bitsPerMegabit  = 1e6
	bitsPerByte     = 8
	payloadBytes    = 1448
	frameBytes      = 1514
	acknowledgement = 66
	framesPerAck    = 2
)

// rateOf returns the traffic of a VM that moves a payload.
func rateOf(megabits float64) curve.Rate {
	frames := megabits * bitsPerMegabit / bitsPerByte / payloadBytes
	return curve.Rate{
		Packets: units.PacketsPerSecond(frames * (1 + 1.0/framesPerAck)),
		Bits:    units.BitsPerSecond(frames * bitsPerByte * (frameBytes + acknowledgement/framesPerAck)),
	}
}

// sample is one published value of a host.
type sample struct {
	at string
	// megabits per second of payload of each VM.
	megabits []float64
	value    float64
}

// terms returns the sum of the terms of all VMs that have traffic, without the
// idle one.
func (s sample) terms() curve.Terms {
	var sum curve.Terms
	for _, megabits := range s.megabits {
		for i, v := range curve.At(rateOf(megabits)) {
			if megabits > 0 && i != curve.TermIdle {
				sum[i] += v
			}
		}
	}
	return sum
}

func (s sample) predict(c curve.Terms) float64 { return cost(c, s.terms()) }

// cost returns what traffic costs by a curve, without the idle VM.
func cost(c, terms curve.Terms) float64 {
	sum := 0.0
	for i := range terms {
		if i != curve.TermIdle {
			sum += c[i] * terms[i]
		}
	}
	return sum
}

// scaled returns samples whose values are multiplied.
func scaled(samples []sample, by float64) []sample {
	out := make([]sample, len(samples))
	for i, s := range samples {
		s.value *= by
		out[i] = s
	}
	return out
}

// copyCost is the CPU time of a bit, in cores per Gbit/s: two copies at 4 GB/s.
// It is chosen: all tables have packets of one size, so that what a bit costs
// cannot be told from what a packet does.
const copyCost = 2 / (4 * bitsPerByte * 1.0)

// fitTerms fits the terms that packets cause, with the cost of a bit given, by
// least squares: coefficients that are not negative, and equal weight for equal
// absolute errors, as the tables' own standard deviations are of one size.
func fitTerms(samples []sample, bits float64) (curve.Terms, error) {
	fitted := []int{curve.TermPackets, curve.TermFew, curve.TermSome, curve.TermMany}
	a := mat.NewDense(len(samples), len(fitted), nil)
	y := make([]float64, len(samples))
	for i, s := range samples {
		terms := s.terms()
		for j, term := range fitted {
			a.Set(i, j, terms[term])
		}
		y[i] = s.value - bits*terms[curve.TermBits]
	}
	x, err := nonNegative(a, y)
	if err != nil {
		return curve.Terms{}, err
	}
	var c curve.Terms
	for j, term := range fitted {
		c[term] = x[j]
	}
	c[curve.TermBits] = bits
	return c, nil
}

// curveSamples are the tables of curves.
type curveSamples struct {
	// CPU time in cores. skew and xen were on Xen.
	skew, xen, kvm, low []sample
	// Wake-ups per second.
	kvmWakeUps, lowWakeUps []sample
}

func readCurves(t tables) (curveSamples, error) {
	var s curveSamples
	var err error
	if s.skew, err = readXen(t.byName[tableSkew], "vm1", "vm2", "vm3", "vm4", "vm5"); err != nil {
		return s, err
	}
	if s.xen, err = readXen(t.byName[tableXen], "vm1_mbps", "vm2_mbps", "vm3_mbps"); err != nil {
		return s, err
	}
	if s.kvm, s.kvmWakeUps, err = readKVM(t.byName[tableKVM]); err != nil {
		return s, err
	}
	s.low, s.lowWakeUps, err = readOverhead(t.byName[tableOverhead])
	return s, err
}

const percent = 100

// readXen reads the CPU time of dom0 and the VMs together. The row of the idle
// host has none.
func readXen(t *table, vms ...string) ([]sample, error) {
	var samples []sample
	for _, r := range t.rows {
		dom0, given, err := r.optional("dom0_cpu_pct")
		if err != nil {
			return nil, err
		}
		if !given {
			continue
		}
		megabits, err := r.numbers(vms...)
		if err != nil {
			return nil, err
		}
		guests, err := r.number("domu_cpu_pct")
		if err != nil {
			return nil, err
		}
		samples = append(samples, sample{at: list(megabits), megabits: megabits, value: (dom0 + guests) / percent})
	}
	return samples, nil
}

// clock of the studies' processor, an i5-2400, in cycles per second.
const clock = 3.1e9

// switchesPerWakeUp: a host counts the switch to a thread that wakes up and the
// one back to the idle thread; the product counts only those to threads of VMs.
const switchesPerWakeUp = 2

func readKVM(t *table) (cores, wakeUps []sample, err error) {
	for _, r := range t.rows {
		megabits, err := r.numbers("vm1_mbps", "vm2_mbps", "vm3_mbps")
		if err != nil {
			return nil, nil, err
		}
		counted, err := r.numbers("cycles_per_s", "ctxt_per_s")
		if err != nil {
			return nil, nil, err
		}
		s := sample{at: list(megabits), megabits: megabits, value: counted[0] / clock}
		cores = append(cores, s)
		s.value = counted[1] / switchesPerWakeUp
		wakeUps = append(wakeUps, s)
	}
	return cores, wakeUps, nil
}

// readOverhead reads what a virtio device costs at 10 Mbit/s.
func readOverhead(t *table) (cores, wakeUps []sample, err error) {
	const megabits = 10
	for _, direction := range []string{"rx", "tx"} {
		r, err := t.find("direction="+direction, "nic=virtio")
		if err != nil {
			return nil, nil, err
		}
		counted, err := r.numbers("cycles", "context_switches")
		if err != nil {
			return nil, nil, err
		}
		s := sample{at: direction + " 10", megabits: []float64{megabits}, value: counted[0] / clock}
		cores = append(cores, s)
		s.value = counted[1] / switchesPerWakeUp
		wakeUps = append(wakeUps, s)
	}
	return cores, wakeUps, nil
}

// xenOverKVM compares the two tables of equal VMs and equal rates: the geometric
// mean of the ratios, and their standard deviation.
func xenOverKVM(s curveSamples) (prior.Figure, error) {
	if len(s.xen) != len(s.kvm) {
		return prior.Figure{}, fmt.Errorf("tables %s and %s: not the same rates", tableXen, tableKVM)
	}
	var logs []float64
	for i := range s.xen {
		if s.xen[i].at != s.kvm[i].at || !(s.kvm[i].value > 0) || !(s.xen[i].value > 0) {
			return prior.Figure{}, fmt.Errorf("tables %s and %s: %s and %s in one place, or no CPU time", tableXen, tableKVM, s.xen[i].at, s.kvm[i].at)
		}
		logs = append(logs, math.Log(s.xen[i].value/s.kvm[i].value))
	}
	mean, deviation := stat.MeanStdDev(logs, nil)
	value := math.Exp(mean)
	return fitted(value, value*deviation, "1"), nil
}
