package sample

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
)

// sending is a round in which the VM's taps have sent so many bytes.
func sending(at time.Duration, bytes ...uint64) *Round {
	var taps []host.TapSample
	for _, b := range bytes {
		taps = append(taps, host.TapSample{FromVM: host.TrafficCounters{Bytes: b}, ToVM: host.TrafficCounters{Bytes: 1 << 40}})
	}
	return round(at, taps)
}

// sent feeds rounds and returns what is told in the last.
func sent(m *SentMeans, rounds ...*Round) *model.Sent {
	var rates *model.NodeRates
	for _, r := range rounds {
		rates = Rates("n", nil, r)
		m.Add(rates, r)
	}
	return rates.VMs[0].Sent
}

// A VM that sends 64 Mbit/s for a quarter of each period has a mean of 16 Mbit/s
// whenever one looks.
func TestSentMeansDoNotSwingWithTurns(t *testing.T) {
	for _, period := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second} {
		var m SentMeans
		total := func(at time.Duration) uint64 {
			whole, rest := at/period, at%period
			return uint64(8e6 * (float64(whole)*period.Seconds()/4 + math.Min(rest.Seconds(), period.Seconds()/4)))
		}
		for second := range 200 {
			at := time.Duration(second) * time.Second
			got := sent(&m, sending(at, total(at)/2, total(at)-total(at)/2))
			if second < 16 {
				if got != nil {
					t.Fatalf("period %v: %+v after %v", period, got, at)
				}
				continue
			}
			if got == nil || got.Seconds != math.Min(float64(second), 64) {
				t.Fatalf("period %v: %+v after %v", period, got, at)
			}
			if swing := math.Abs(float64(got.BitsPerSecond) - 16e6); second >= 64 && swing > 1 {
				t.Fatalf("period %v: %v after %v", period, got.BitsPerSecond, at)
			}
		}
	}
}

func TestSentMeansStartOver(t *testing.T) {
	const s = time.Second
	failed := sending(25 * s)
	failed.VMs[0].Sample.TapsErr = errors.New("read error")
	other := sending(30*s, 1000)
	other.VMs[0].Process.Start = 99
	for name, tc := range map[string]struct {
		rounds []*Round
		want   float64
	}{
		"known after two of the longest periods": {[]*Round{sending(0, 0), sending(16*s, 16000)}, 8000},
		"not before":                             {[]*Round{sending(0, 0), sending(15*s, 16000)}, -1},
		"counters that went back":                {[]*Round{sending(0, 5000), sending(20*s, 100), sending(30*s, 200)}, -1},
		"a tap that came":                        {[]*Round{sending(0, 0), sending(20*s, 1000, 1e12), sending(30*s, 2000, 1e12)}, -1},
		"another process":                        {[]*Round{sending(0, 0), other}, -1},
		"a clock that went back":                 {[]*Round{sending(60*s, 0), sending(20*s, 1000)}, -1},
		"no taps":                                {[]*Round{sending(0), sending(30 * s)}, -1},
		"taps not read":                          {[]*Round{sending(0, 0), failed}, -1},
		"taps not read once":                     {[]*Round{sending(0, 0), failed, sending(50*s, 50000)}, 8000},
		"rounds in quick succession":             {[]*Round{sending(0, 0), sending(s/10, 9000), sending(16*s, 16000), sending(16*s+s/10, 16100)}, 8000},
		"only the last minute counts":            {[]*Round{sending(0, 0), sending(30*s, 1e9), sending(94*s, 1e9+64000)}, 8000},
		"few rounds reach back longer":           {[]*Round{sending(0, 0), sending(60*s, 60000), sending(80*s, 80000)}, 8000},
	} {
		var m SentMeans
		got := sent(&m, tc.rounds...)
		if (got == nil) != (tc.want < 0) || got != nil && math.Abs(float64(got.BitsPerSecond)-tc.want) > 1 {
			t.Errorf("%s: %+v, want %v", name, got, tc.want)
		}
	}
}
