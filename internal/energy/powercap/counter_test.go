package powercap

import (
	"math"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
)

func TestDifference(t *testing.T) {
	const (
		// wrap is the range of a package's counter on many processors: 262 kJ.
		wrap = uint64(262143328850)
		most = units.Watts(1000)
		full = uint64(math.MaxUint64)
	)
	for name, c := range map[string]struct {
		from, to, wrapAt uint64
		elapsed          time.Duration
		most             units.Watts
		want             units.Joules
		verdict          verdict
	}{
		"goes on":                      {1e6, 51e6, wrap, time.Second, most, 50, good},
		"goes on, never wraps":         {1e6, 51e6, 0, time.Second, most, 50, good},
		"at most":                      {0, 1000e6, wrap, time.Second, most, 1000, good},
		"a little":                     {7, 8, wrap, time.Second, most, 1e-6, good},
		"wrapped":                      {wrap - 20e6, 30e6, wrap, time.Second, most, 50, wrapped},
		"wrapped to its start":         {wrap - 20e6, 0, wrap, time.Second, most, 20, wrapped},
		"at its end":                   {wrap - 20e6, wrap, wrap, time.Second, most, 20, good},
		"from its end":                 {wrap, 20e6, wrap, time.Second, most, 20, wrapped},
		"restarted":                    {100e9, 5e6, wrap, time.Second, most, 0, reset},
		"restarted, never wraps":       {100e9, 5e6, 0, time.Second, most, 0, reset},
		"back by one":                  {100e9, 100e9 - 1, wrap, time.Second, most, 0, reset},
		"frozen":                       {5e6, 5e6, wrap, time.Second, most, 0, frozen},
		"frozen, never wraps":          {5e6, 5e6, 0, time.Second, most, 0, frozen},
		"frozen at 0":                  {0, 0, wrap, time.Second, most, 0, frozen},
		"frozen or wrapped":            {5e6, 5e6, wrap, 5 * time.Minute, most, 0, gap},
		"too fast":                     {0, 1000e6 + 1, wrap, time.Second, most, 0, tooFast},
		"too fast, never wraps":        {0, full, 0, time.Second, most, 0, tooFast},
		"long, but not long enough":    {0, 200e9, wrap, 300 * time.Second, most, 200e3, good},
		"may have wrapped in addition": {0, 30e9, wrap, 300 * time.Second, most, 0, gap},
		"may have wrapped twice":       {50e9, 30e9, wrap, 600 * time.Second, most, 0, gap},
		"long, never wraps":            {0, 3000e9, 0, time.Hour, most, 3e6, good},
		"no time":                      {0, 1e6, wrap, 0, most, 0, gap},
		"back in time":                 {0, 1e6, wrap, -time.Second, most, 0, gap},
		"beyond its range":             {0, wrap + 1, wrap, time.Second, most, 0, reset},
		"from beyond its range":        {wrap + 1, 5, wrap, time.Second, most, 0, reset},
		"no power is possible":         {0, 1e6, wrap, time.Second, 0, 0, tooFast},
		"widest wrap":                  {full - 1, 1, full, time.Second, most, 2e-6, wrapped},
	} {
		got, verdict := difference(c.from, c.to, c.wrapAt, c.elapsed, c.most)
		if got != c.want || verdict != c.verdict {
			t.Errorf("%s: %v J, %v; want %v J, %v", name, got, verdict, c.want, c.verdict)
		}
		if usable := c.verdict == good || c.verdict == wrapped; verdict.isUsable() != usable {
			t.Errorf("%s: %v is usable: %v", name, verdict, verdict.isUsable())
		}
	}
}

// FuzzDifference drives a true counter: as long as less than one range passes
// between two readings, the energy is found exactly, whatever the range is and
// wherever the counter stands; and no energy is ever above what is possible.
func FuzzDifference(f *testing.F) {
	f.Add(uint64(5), uint64(100), uint64(40), uint16(1000))
	f.Add(uint64(0), uint64(262143328850), uint64(262143328849), uint16(1))
	f.Add(uint64(math.MaxUint64), uint64(math.MaxUint64), uint64(1), uint16(50))
	f.Add(uint64(7), uint64(0), uint64(3), uint16(9))
	f.Fuzz(func(t *testing.T, start, wrapAt, used uint64, seconds uint16) {
		const most = 1000
		elapsed := time.Duration(seconds) * time.Second
		possible := float64(seconds) * most * 1e6
		from, to := start, start+used
		if wrapAt > 0 {
			from, used = start%wrapAt, used%wrapAt
			if to = from + used; to < from || to >= wrapAt {
				to = from - (wrapAt - used)
			}
		}
		got, verdict := difference(from, to, wrapAt, elapsed, most)
		if !(got >= 0) || float64(got) > possible/1e6 || (got != 0) != verdict.isUsable() {
			t.Fatalf("from %d to %d of %d in %v: %v J, %v", from, to, wrapAt, elapsed, got, verdict)
		}
		sure := used > 0 && to != from && float64(used) <= possible && (wrapAt == 0 && to > from || wrapAt > 0 && possible < float64(wrapAt))
		if want := units.Joules(float64(used) / 1e6); sure && got != want {
			t.Errorf("from %d to %d of %d in %v: %v J, %v; want %v J", from, to, wrapAt, elapsed, got, verdict, want)
		}
	})
}
