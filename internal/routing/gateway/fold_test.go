package gateway

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
)

// randomMembers have as many distinct shares as wanted, and are in any folds.
func randomMembers(r *rand.Rand, count, distinct int) []foldMember {
	members := make([]foldMember, count)
	for i := range members {
		members[i] = foldMember{
			name: fmt.Sprintf("vm-%03d", i), share: float64(r.IntN(distinct)) / float64(distinct*count),
			fold: r.IntN(maxBackends+1) - 1,
		}
	}
	return members
}

func TestAssignSeparatesShares(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 500 {
		distinct := 1 + r.IntN(maxBackends)
		members := randomMembers(r, 17+r.IntN(200), distinct)
		goal := assign(members)
		share := map[int]float64{}
		for _, m := range members {
			fold, ok := goal[m.name]
			if !ok || fold < 0 || fold >= maxBackends {
				t.Fatalf("%s has fold %d of %d", m.name, fold, maxBackends)
			}
			if old, known := share[fold]; known && old != m.share {
				t.Fatalf("fold %d has shares %g and %g of %d that differ", fold, old, m.share, distinct)
			}
			share[fold] = m.share
		}
	}
}

// More shares than folds: those of a fold are near each other, and who has none
// is never with one who has some.
func TestAssignJoinsNeighbours(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for range 200 {
		members := randomMembers(r, 300, 150)
		goal := assign(members)
		low, high := map[int]float64{}, map[int]float64{}
		for _, m := range members {
			f := goal[m.name]
			if _, ok := low[f]; !ok {
				low[f], high[f] = math.Inf(1), 0
			}
			low[f], high[f] = min(low[f], m.share), max(high[f], m.share)
		}
		for f := range low {
			if width := (high[f] - low[f]) * 300; low[f] == 0 && high[f] > 0 || width > 0.2 {
				t.Fatalf("fold %d has shares from %g to %g of 1/300", f, low[f]*300, high[f]*300)
			}
		}
	}
}

func TestAssignMovesFew(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for range 200 {
		members := randomMembers(r, 100, 10)
		settle := func() (moved int) {
			for i, goal := range assign(members) {
				var index int
				if _, err := fmt.Sscanf(i, "vm-%d", &index); err != nil {
					t.Fatal(err)
				}
				if members[index].fold != goal {
					members[index].fold = goal
					moved++
				}
			}
			return moved
		}
		settle()
		if moved := settle(); moved != 0 {
			t.Fatalf("%d members move though nothing changed", moved)
		}
		members[r.IntN(len(members))].share = 0.0055 // between the others'
		// A new share may take the fold of the fewest, when all have members.
		sizes := make([]int, maxBackends)
		for _, m := range members {
			sizes[m.fold]++
		}
		if moved, most := settle(), 1+slices.Min(sizes); moved > most {
			t.Fatalf("%d members move as one share changed, want at most %d", moved, most)
		}
	}
	stays := []foldMember{{name: "a", share: 1, fold: 3}, {name: "b", share: 1, fold: 3}, {name: "c", share: 0, fold: 3, stays: true}}
	if goal := assign(stays); goal["c"] != 3 {
		t.Errorf("who is not ready moves to fold %d", goal["c"])
	}
}

func TestServiceNames(t *testing.T) {
	long := "a.very.long-name-of-a-virtual-machine.that.is.longer.than.a.label.may.be.in.kubernetes.example"
	seen := map[string]bool{}
	for _, kind := range []v1alpha1.GroupTargetKind{v1alpha1.GroupHTTPRoute, v1alpha1.GroupTCPRoute} {
		for _, route := range []string{"web", "9.web", long, long + "2"} {
			group := &routing.Group{Target: v1alpha1.TrafficGroup{Kind: kind, Name: route}}
			names := []string{foldService(group, 3), memberService(group, "fold-3")}
			for _, member := range []string{"a", "a.b", "a-b", long, long + "2"} {
				names = append(names, memberService(group, member))
			}
			for _, name := range names {
				if problems := validation.IsDNS1035Label(name); len(problems) > 0 || seen[name] {
					t.Errorf("Service name %q of %s %s: %v, seen before: %v", name, kind, route, problems, seen[name])
				}
				seen[name] = true
			}
		}
	}
}
