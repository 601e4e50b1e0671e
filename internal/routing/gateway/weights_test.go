package gateway

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestApportion(t *testing.T) {
	for _, test := range []struct {
		name   string
		shares map[string]float64
		want   map[string]int64
	}{
		{"nobody", nil, nil},
		{"one", map[string]float64{"a": 0.2}, map[string]int64{"a": 1000}},
		{"exact", map[string]float64{"a": 0.5, "b": 0.3, "c": 0.2}, map[string]int64{"a": 500, "b": 300, "c": 200}},
		{"remainders", map[string]float64{"a": 1, "b": 1, "c": 1}, map[string]int64{"a": 334, "b": 333, "c": 333}},
		{"tiny", map[string]float64{"a": 1, "b": 1e-9}, map[string]int64{"a": 999, "b": 1}},
	} {
		if diff := cmp.Diff(test.want, apportion(test.shares)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

func FuzzApportion(f *testing.F) {
	f.Add(uint64(1), 5)
	f.Add(uint64(2), 16)
	f.Fuzz(func(t *testing.T, seed uint64, n int) {
		if n < 1 || n > maxBackends {
			t.Skip()
		}
		r := rand.New(rand.NewPCG(seed, 1))
		shares, sum := map[string]float64{}, 0.0
		for i := range n {
			share := math.Pow(r.Float64(), 6) + 1e-12
			shares[fmt.Sprint(i)] = share
			sum += share
		}
		total := int64(0)
		for name, weight := range apportion(shares) {
			total += weight
			if weight < 1 || math.Abs(float64(weight)-shares[name]/sum*wholeWeight) > maxBackends {
				t.Errorf("share %g has weight %d", shares[name]/sum, weight)
			}
		}
		if total != wholeWeight {
			t.Errorf("weights add up to %d", total)
		}
	})
}

func TestAllowedShares(t *testing.T) {
	up := func(name string, wanted, inForce float64) weightInput {
		return weightInput{name: name, wanted: wanted, inForce: inForce, ready: true, reachable: true}
	}
	starting := func(name string, wanted float64) weightInput {
		return weightInput{name: name, wanted: wanted, ready: true}
	}
	down := func(name string, wanted, inForce float64) weightInput {
		return weightInput{name: name, wanted: wanted, inForce: inForce}
	}
	for _, test := range []struct {
		name      string
		inputs    []weightInput
		minActive int
		want      map[string]float64
		waits     string
	}{
		{"all can", []weightInput{up("a", 0.7, 0.5), up("b", 0.3, 0.5)}, 1, map[string]float64{"a": 0.7, "b": 0.3}, ""},
		{"those that have it keep it", []weightInput{up("a", 0, 1), starting("b", 1)}, 1, map[string]float64{"a": 1}, "b"},
		{"traffic stays until all can take it", []weightInput{up("a", 0.5, 0), up("c", 0, 1), starting("b", 0.5)}, 1, map[string]float64{"c": 1}, "b"},
		{"nobody has it yet", []weightInput{up("a", 0.5, 0), starting("b", 0.5)}, 1, map[string]float64{"a": 0.5}, "b"},
		{"one fails", []weightInput{up("a", 0.5, 0.5), down("b", 0.5, 0.5)}, 1, map[string]float64{"a": 0.5}, ""},
		{"one fails and is replaced", []weightInput{up("a", 0.5, 0.5), down("b", 0.5, 0.5), up("c", 0, 0)}, 2, map[string]float64{"a": 0.5, "c": 0.5}, ""},
		{"who serves already first", []weightInput{up("a", 1, 0.5), up("b", 0, 0), up("c", 0, 0.5)}, 2, map[string]float64{"a": 1, "c": 1}, ""},
		{"none wanted", []weightInput{up("a", 0, 0), up("b", 0, 0)}, 0, map[string]float64{"a": 1}, ""},
		{"all fail", []weightInput{down("a", 1, 1), down("b", 0, 0)}, 2, nil, ""},
		{"fewer than wanted", []weightInput{up("a", 1, 1)}, 3, map[string]float64{"a": 1}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, waits := allowedShares(test.inputs, test.minActive)
			if diff := cmp.Diff(test.want, got); diff != "" || waits != test.waits {
				t.Errorf("waits for %q, want %q; shares (-want +got):\n%s", waits, test.waits, diff)
			}
		})
	}
}
