package planner

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
)

// A new leader that knows neither rates nor meters, nor how levers stand, says of any node what the one
// before said, word for word.
func TestNewLeaderRepeatsEveryPlan(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 19))
		node := with(newNode([]string{"a", "b", "c", "d"}[:1+r.IntN(4)]...), nil, everyLever)
		node.Slices = r.IntN(2) == 0
		randomShaping(r, &node)
		randomBuffering(r, &node)
		for i := range node.VMs {
			node.VMs[i].NamespaceSelected = r.IntN(4) > 0
			node.VMs[i].Dedicated = r.IntN(4) == 0
			if r.IntN(4) == 0 {
				node.VMs[i].Affinity = model.AffinityShared
			}
		}
		if r.IntN(3) == 0 {
			node.Policy.Levers = node.Policy.Levers[r.IntN(4):][:1]
		}
		node.Metered = r.IntN(3) > 0
		node.Policy.MaxChangesPerHour, node.NodesBusy = r.IntN(4), r.IntN(9) == 0
		if r.IntN(9) == 0 {
			inFreeze(&node)
		}
		for _, lever := range model.NodeLevers() {
			if stance := []model.Stance{"", "", model.StanceAwaiting, model.StanceOnTrial}[r.IntN(4)]; stance != "" {
				node.Proofs = append(node.Proofs, model.Proof{
					Lever: lever, Stance: stance, Use: stance == model.StanceOnTrial, Schedule: scheduleOf(lever, 1, false), Message: "so it was seen",
				})
			}
		}
		if diff := repeated(r, node); diff != "" {
			t.Fatalf("seed %d (-was +is):\n%s", seed, diff)
		}
	}
}

// repeated returns what a new leader that knows neither rates nor meters says otherwise
// than the one before.
func repeated(r *rand.Rand, node model.Node) string {
	was := Plan(node, now())
	node.Current = &was
	// Nor does it know what was seen of packets.
	node.VMs = slices.Clone(node.VMs)
	for i := range node.VMs {
		node.VMs[i].Tuning = model.Tuning{}
	}
	if !node.Metered || r.IntN(2) == 0 {
		unknownMeter(&node)
	}
	node.Proofs, node.ProofsAwaited = nil, true
	if r.IntN(2) == 0 {
		node.Rates, node.RatesAwaited = nil, true
	}
	return cmp.Diff(was, Plan(node, now().Add(time.Minute)))
}
