package verify_test

import (
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/verify"
)

func TestBlocks(t *testing.T) {
	const second, minute = time.Second, time.Minute
	counters := verify.Meter{Interval: second, Freshness: 2 * second}
	kepler := verify.Meter{Interval: 30 * second, Freshness: minute}
	for _, c := range []struct {
		name           string
		lever          v1alpha1.Lever
		meter          verify.Meter
		block, washOut time.Duration
	}{
		{"shortest", v1alpha1.LeverBuffering, counters, 5 * minute, 12 * second},
		{"a wash-out is at most a quarter", v1alpha1.LeverTrafficShare, counters, 21 * minute, 302 * second},
		{"a slow meter", v1alpha1.LeverAffinity, kepler, 12 * minute, 2 * minute},
		{"a lever that is not known", "Other", counters, 5 * minute, 62 * second},
		{"turns", v1alpha1.LeverShaping, counters, 5 * minute, 18 * second},
	} {
		t.Run(c.name, func(t *testing.T) {
			block, washOut, err := verify.Blocks(verify.Settling(c.lever), c.meter)
			if err != nil || block != c.block || washOut != c.washOut {
				t.Errorf("blocks of %v with a wash-out of %v, error %v, want %v and %v", block, washOut, err, c.block, c.washOut)
			}
		})
	}
}
