package turns

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
)

// Rates that vary by a tenth, over an hour of rounds, take nobody's turn: a VM
// that just fits neither comes and goes itself nor has others do so.
func TestNoisyRatesTakeNoTurns(t *testing.T) {
	const vms, rounds, noise = 10, 240, 0.1
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 9))
		mean, drift, node := make([]float64, vms), make([]float64, vms), make([]VM, vms)
		for i := range node {
			mean[i] = math.Pow(10, 6.5+2*r.Float64())
			node[i] = VM{PodUID: strconv.Itoa(i), MaxDelay: time.Minute}
		}
		lost, taken := 0, 0
		for range rounds {
			for i := range node {
				// A mean over 64 seconds of which a quarter is new.
				drift[i] = 0.8*drift[i] + 0.6*noise*r.NormFloat64()
				sent := units.BitsPerSecond(mean[i] * math.Exp(drift[i]))
				node[i].Sent = &sent
			}
			plan := Plan(node)
			check(t, node, plan)
			for i, d := range plan {
				if d.Turn != nil {
					taken++
				} else if node[i].Current != nil {
					lost++
				}
				node[i].Current = d.Turn
			}
		}
		if lost > 0 || taken < vms*rounds/2 {
			t.Errorf("seed %d: %d turns were lost, and %d of %d taken", seed, lost, taken, vms*rounds)
		}
	}
}
