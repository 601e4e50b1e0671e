package loop

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// TestWrong: wrong is what stands against the truth by more than is worth having, and a class
// that ever adopted what costs on its units together.
func TestWrong(t *testing.T) {
	t.Parallel()
	const affinity, buffering, adopted, rejected = 0, 1, model.StanceAdopted, model.StanceRejected
	node := func(lever int, effect float64, stance model.Stance) Node {
		n := Node{Name: "n", Kind: "server a"}
		n.Effects[lever], n.Stances[lever] = effect, stance
		return n
	}
	event := func(kind proof.Kind, model string) Event {
		return Event{News: proof.News{Kind: kind, Lever: "Affinity", Class: verify.Class{CPUModel: model}}}
	}
	for name, c := range map[string]struct {
		is   Outcome
		want Wrong
	}{
		"what saves is adopted, what costs rejected": {is: Outcome{Nodes: []Node{node(affinity, -0.02, adopted), node(buffering, 0.02, rejected)}}},
		"hardly anything either way":                 {is: Outcome{Nodes: []Node{node(affinity, 0.004, adopted), node(buffering, -0.004, rejected)}}},
		"what costs is on trial":                     {is: Outcome{Nodes: []Node{node(affinity, 0.02, model.StanceOnTrial)}}},
		"what costs is adopted": {
			is:   Outcome{Nodes: []Node{node(affinity, 0.02, adopted)}},
			want: Wrong{Adoptions: []string{"Affinity on n (server a): +0.0200"}},
		},
		"what saves is rejected": {
			is:   Outcome{Nodes: []Node{node(buffering, -0.02, rejected)}},
			want: Wrong{Rejections: []string{"Buffering on n (server a): -0.0200"}},
		},
		"of groups": {
			is:   Outcome{Groups: []Group{{Name: "g", Kind: "server c", Effect: 0.03, Stance: adopted}}},
			want: Wrong{Adoptions: []string{"TrafficShare on g (server c): +0.0300"}},
		},
		"one of two of a class costs": {is: Outcome{
			Nodes:  []Node{node(affinity, 0.02, rejected), node(affinity, -0.04, adopted)},
			Events: []Event{event(proof.Adopted, "simulated server a")},
		}},
		"a class adopted what costs, and later not": {
			is: Outcome{
				Nodes:  []Node{node(affinity, 0.02, rejected), node(affinity, 0.04, rejected)},
				Events: []Event{event(proof.Adopted, "simulated server a"), event(proof.Rejected, "simulated server a"), event(proof.Adopted, "simulated server b")},
			},
			want: Wrong{Classes: []string{"Affinity on cpu=simulated server a;kernel=;idle=;workload= at hour 0.0: +0.0300"}},
		},
	} {
		if diff := cmp.Diff(c.want, c.is.Wrong()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
