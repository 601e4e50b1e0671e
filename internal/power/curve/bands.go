package curve

import (
	"math"

	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// numBands is two bands an octave, from lowestBand on. What is lower is in
	// the first, what is higher in the last.
	numBands   = 34
	lowestBand = 6 // 2^6 packets/s
	// beyond is the batch of what is beyond the knee, after two an octave: of VMs
	// with more traffic than usual, and with less.
	beyond = numBands
	// bandMemory is how many VM-seconds a band holds before older ones count
	// less: hours of a VM, so that a night is not forgotten by noon.
	bandMemory = 4 * 3600
	// fullSeconds is how long a VM has to be observed to count in full. What a
	// curve misses of a VM, above all its guest's own work, changes slowly: many
	// short observations say no more than one long.
	fullSeconds = 60
)

// band is what VMs did in one range of rates, as sums.
type band struct {
	seconds, rate float64
	// healthy are the seconds in which nothing says that traffic was in trouble.
	healthy float64
	// more are the seconds of VMs with clearly more traffic than usual, and wait
	// the sum of by how much longer than usual their threads waited.
	more, wait float64
}

// clearlyMore is the part of a VM's traffic by which it is above the usual.
const clearlyMore = 0.2

func (b *band) add(now, from *signs, healthy bool, seconds float64) {
	if b.seconds > bandMemory {
		b.seconds, b.rate, b.healthy, b.more, b.wait = b.seconds/2, b.rate/2, b.healthy/2, b.more/2, b.wait/2
	}
	b.seconds += seconds
	b.rate += seconds * now.packets
	if healthy {
		b.healthy += seconds
	}
	if from.packets > clearlyMore*now.packets {
		b.more += seconds
		b.wait += seconds * from.of[signWait]
	}
}

// mean returns the mean rate in packets/s.
func (b *band) mean() float64 { return b.rate / b.seconds }

// rise returns by how much longer than usual VMs with more traffic wait.
func (b *band) rise() float64 { return b.wait / b.more }

// bandOf returns the band of a rate.
func bandOf(packets units.PacketsPerSecond) int {
	fraction, exponent := math.Frexp(float64(packets)) // 0.5 <= fraction < 1
	at := 2 * (exponent - 1 - lowestBand)
	if fraction >= math.Sqrt2/2 {
		at++
	}
	return min(max(at, 0), numBands-1)
}

// batch is what VMs at similar rates did since the last round, as sums. A curve
// is linear in its coefficients, so the means of several readings are as good a
// reading as each of them, and cost one update.
type batch struct {
	// weight is that of the readings, see fullSeconds.
	weight, seconds float64
	sum             reading
}

func (b *batch) add(r *reading, seconds float64) {
	b.weight += min(1, seconds/fullSeconds)
	b.seconds += seconds
	b.sum.add(r, seconds)
}

// mean returns the mean over the seconds.
func (b *batch) mean() reading {
	var mean reading
	mean.add(&b.sum, 1/b.seconds)
	return mean
}
