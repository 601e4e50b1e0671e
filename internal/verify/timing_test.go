package verify_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify"
)

func TestBlocks(t *testing.T) {
	const second, minute = time.Second, time.Minute
	counters := verify.Meter{Interval: second, Freshness: 2 * second}
	kepler := verify.Meter{Interval: 30 * second, Freshness: minute}
	for _, c := range []struct {
		name           string
		lever          model.Lever
		meter          verify.Meter
		block, washOut time.Duration
	}{
		{"shortest", model.LeverBuffering, counters, 5 * minute, 12 * second},
		{"a wash-out is at most a quarter", model.LeverTrafficShare, counters, 21 * minute, 302 * second},
		{"a slow meter", model.LeverAffinity, kepler, 12 * minute, 2 * minute},
		{"a noisy meter", model.LeverSlice, verify.Meter{Interval: 10 * second, Noise: 0.02}, 18 * minute, 40 * second},
		{"a meter too noisy for any block", model.LeverSlice, verify.Meter{Interval: 10 * second, Noise: 0.2}, 60 * minute, 40 * second},
		{"a lever that is not known", "Other", counters, 5 * minute, 62 * second},
		{"turns", model.LeverShaping, counters, 5 * minute, 18 * second},
	} {
		t.Run(c.name, func(t *testing.T) {
			block, washOut, err := verify.Blocks(verify.Settling(c.lever), c.meter)
			if err != nil || block != c.block || washOut != c.washOut {
				t.Errorf("blocks of %v with a wash-out of %v, error %v, want %v and %v", block, washOut, err, c.block, c.washOut)
			}
		})
	}
}

func TestBlocksRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		meter verify.Meter
		want  string
	}{
		{"too slow a meter", verify.Meter{Interval: 5 * time.Minute}, "have the meter tell its figures more often"},
		{"no interval", verify.Meter{}, "interval 0s must be above 0"},
		{"noise that is no number", verify.Meter{Interval: time.Second, Noise: math.NaN()}, "noise NaN"},
		{"freshness below 0", verify.Meter{Interval: time.Second, Freshness: -1}, "freshness -1ns"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, _, err := verify.Blocks(time.Minute, c.meter); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// TestRoundNoise: rounded, a noise is not less, and its blocks hold at most twice as many
// figures.
func TestRoundNoise(t *testing.T) {
	const least = 0.0089
	for noise := 0.001; noise < 0.3; noise *= 1.01 {
		is := verify.RoundNoise(noise)
		if noise < least && is != 0 || noise > 1.01*least && (is < 0.999*noise || is > 1.415*noise) {
			t.Errorf("%v is rounded to %v", noise, is)
		}
		if again := verify.RoundNoise(is); again != is {
			t.Errorf("%v is rounded to %v, and that to %v", noise, is, again)
		}
	}
	if is := verify.RoundNoise(math.NaN()); is != 0 {
		t.Errorf("no number is rounded to %v", is)
	}
}
