package verify_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify"
)

// TestDraw holds what the analysis stands on: each pair has one block with the lever and
// one without, and a fair coin, apart from all others, tells which comes first.
func TestDraw(t *testing.T) {
	const pairs, draws = 32, 400
	firsts, repeats := 0, 0
	for number := range draws {
		seed := verify.Seed("node-a", v1alpha1.LeverAffinity, number)
		s, err := verify.Draw(timing(seed), pairs)
		if err != nil {
			t.Fatal(err)
		}
		if !s.IsValid() || len(s.On) != 2*pairs || s.Otherwise || s.Seed != seed {
			t.Fatalf("schedule %+v", s)
		}
		for i := 0; i < len(s.On); i += 2 {
			if s.On[i] == s.On[i+1] {
				t.Fatalf("seed %d: blocks %d and %d are both %v", seed, i, i+1, s.On[i])
			}
			if s.On[i] {
				firsts++
			}
			if i > 0 && s.On[i] == s.On[i-2] {
				repeats++
			}
		}
		again, err := verify.Draw(timing(seed), pairs)
		if diff := cmp.Diff(s, again); err != nil || diff != "" {
			t.Fatalf("seed %d draws differently: %v %s", seed, err, diff)
		}
	}
	isHalf(t, "pairs that begin with the lever", firsts, pairs*draws)
	isHalf(t, "pairs that are as the one before", repeats, (pairs-1)*draws)
}

// isHalf fails if a count of fair coins is more than four standard deviations off.
func isHalf(t *testing.T, what string, count, of int) {
	t.Helper()
	if off := math.Abs(float64(count)/float64(of) - 0.5); off > 4*0.5/math.Sqrt(float64(of)) {
		t.Errorf("%s: %d of %d", what, count, of)
	}
}

// TestSeed tells units, levers and numbers apart, also where they read alike together.
func TestSeed(t *testing.T) {
	seen := map[int64]string{}
	for _, unit := range []string{"", "a", "a1", "a 1", "b"} {
		for _, lever := range []v1alpha1.Lever{"", "1 a", v1alpha1.LeverAffinity, v1alpha1.LeverSlice} {
			for _, number := range []int{0, 1, 11} {
				seed := verify.Seed(unit, lever, number)
				if other, is := seen[seed]; is {
					t.Errorf("%q, %q, %d: as %s", unit, lever, number, other)
				}
				seen[seed] = unit + "," + string(lever)
			}
		}
	}
}

func TestDrawHoldBack(t *testing.T) {
	for share, stratum := range map[float64]int{0.05: 20, 0.5: 2, 0.3: 3, 0.001: 1000, 1e-9: model.MostBlocks} {
		places := map[int]int{}
		for seed := range int64(50) {
			s, err := verify.DrawHoldBack(timing(seed), share)
			if err != nil {
				t.Fatal(err)
			}
			if verify.StratumBlocks(share) != stratum || len(s.On) != model.MostBlocks/stratum*stratum || !s.Otherwise {
				t.Fatalf("share %v: %d blocks in strata of %d, otherwise %v", share, len(s.On), verify.StratumBlocks(share), s.Otherwise)
			}
			for from := 0; from < len(s.On); from += stratum {
				off := 0
				for i, on := range s.On[from : from+stratum] {
					if !on {
						off++
						places[i]++
					}
				}
				if off != 1 {
					t.Fatalf("share %v: %d blocks are off from block %d", share, off, from)
				}
			}
		}
		if stratum <= 20 && len(places) != stratum {
			t.Errorf("share %v: off at %v only", share, places)
		}
	}
}
