package placement

import (
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
)

// HoursAhead is for how many hours a VM should fit where it comes to, and save there.
const HoursAhead = 12

const hoursOfDay = 24

// Day is what a VM used in each hour of the last day. The zero value knows none.
type Day [hoursOfDay]hour

// hour is a mean of samples.
type hour struct {
	// number of the hour since 1970.
	number  int32
	samples float32
	mean    float32
}

// Add adds a sample of a VM's mean use.
func (d *Day) Add(at time.Time, used units.Cores) {
	number := numberOf(at)
	h := &d[number%hoursOfDay]
	if h.number != number {
		*h = hour{number: number}
	}
	h.samples++
	h.mean += (float32(used) - h.mean) / h.samples
}

// Ahead returns what a VM is expected to use in each of the next hours: what it used a day before
// them, or what it uses now where that is not known.
func (d *Day) Ahead(at time.Time, now units.Cores) *[HoursAhead]units.Cores {
	var ahead [HoursAhead]units.Cores
	for i := range ahead {
		number := numberOf(at) + int32(i) + 1 - hoursOfDay
		ahead[i] = now
		if h := &d[number%hoursOfDay]; h.number == number {
			ahead[i] = units.Cores(h.mean)
		}
	}
	return &ahead
}

// Ended returns whether nothing is known of the last day.
func (d *Day) Ended(at time.Time) bool {
	return !slices.ContainsFunc(d[:], func(h hour) bool { return h.number > numberOf(at)-hoursOfDay })
}

func numberOf(at time.Time) int32 { return int32(at.Unix() / int64(time.Hour/time.Second)) }
