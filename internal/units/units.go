// Package units holds the physical quantities and CPU sets that the product
// computes with, so that no bare number crosses a package's border.
package units

import "time"

// Watts is power.
type Watts float64

// Joules is energy.
type Joules float64

// Cores is CPU time per time: 1 is one logical CPU fully used.
type Cores float64

// BitsPerSecond is a rate of data.
type BitsPerSecond float64

// PacketsPerSecond is a rate of packets.
type PacketsPerSecond float64

// PerSecond is a rate of events, such as context switches.
type PerSecond float64

// Bytes is an amount of memory or data.
type Bytes float64

// Megahertz is a frequency of a CPU's clock.
type Megahertz float64

// Over returns the CPU use that a run time makes over an elapsed time. It is 0
// when no time elapsed.
func Over(run, elapsed time.Duration) Cores {
	if elapsed <= 0 {
		return 0
	}
	return Cores(float64(run) / float64(elapsed))
}

// RateOf returns how often something happened per second when it happened
// count times in an elapsed time. It is 0 when no time elapsed.
func RateOf(count uint64, elapsed time.Duration) PerSecond {
	if elapsed <= 0 {
		return 0
	}
	return PerSecond(float64(count) / elapsed.Seconds())
}
