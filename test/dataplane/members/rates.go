package members

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/dataplane/node"
)

// tap is how the members' network devices are called in rates.
const tap = "tap0"

// sample is a pod's counters at a time.
type sample struct {
	at       time.Time
	counters node.Counters
}

// Rates are the real traffic of all VMs that run, by the name of their node: what
// an agent there would measure since the last call. A VM has rates from the
// second call on.
func (f *Fleet) Rates(now time.Time) (map[string][]model.VMRates, error) {
	rates := map[string][]model.VMRates{}
	for _, m := range f.all() {
		if m.QEMUPID() == 0 {
			continue
		}
		counters, err := m.Counters()
		if err != nil {
			if m.QEMUPID() == 0 {
				continue // it ended meanwhile
			}
			return nil, err
		}
		before, known := f.swap(m, sample{now, counters})
		if seconds := now.Sub(before.at).Seconds(); known && seconds > 0 {
			rates[m.Node] = append(rates[m.Node], m.rates(before.counters, counters, seconds))
		}
	}
	return rates, nil
}

// swap remembers a member's newest sample and returns the one before.
func (f *Fleet) swap(m *Member, newest sample) (before sample, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, known = f.known[m.UID]
	f.known[m.UID] = newest
	return before, known
}

func (m *Member) rates(before, now node.Counters, seconds float64) model.VMRates {
	way := func(bytes, packets uint64) model.TrafficRates {
		return model.TrafficRates{
			BitsPerSecond:    units.BitsPerSecond(8 * float64(bytes) / seconds),
			PacketsPerSecond: units.PacketsPerSecond(float64(packets) / seconds),
		}
	}
	return model.VMRates{
		PodUID: string(m.UID), Namespace: m.VMI.Namespace, Name: m.VMI.Name,
		VCPUs: []model.VCPURates{{Index: 0}},
		Taps: []model.TapRates{{
			Name:   tap,
			ToVM:   way(now.ReceivedBytes-before.ReceivedBytes, now.ReceivedPackets-before.ReceivedPackets),
			FromVM: way(now.SentBytes-before.SentBytes, now.SentPackets-before.SentPackets),
		}},
	}
}
