package policy

import (
	"math"
	"testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/statuses"
	trialing "github.com/joulevirt/joulevirt/controllers/trials"
	"github.com/joulevirt/joulevirt/internal/ledger"
	"github.com/joulevirt/joulevirt/internal/trials"
	"github.com/joulevirt/joulevirt/internal/units"
)

// adoptedOnTwoClasses has adopted Buffering on nodes a and b of one CPU model and on c of another,
// and TrafficShare on a group of a and c.
func adoptedOnTwoClasses(t *testing.T) *trialing.Memory {
	t.Helper()
	return loaded(t, []trials.Unit{
		{Name: "a", Nodes: []string{"a"}, CPUModel: simulated}, {Name: "b", Nodes: []string{"b"}, CPUModel: simulated},
		{Name: "c", Nodes: []string{"c"}, CPUModel: "EPYC"}, {Name: "shop/web", Nodes: []string{"a", "c"}},
	}, adopted(v1alpha1.LeverBuffering, simulated, ""), adopted(v1alpha1.LeverBuffering, "EPYC", ""), adopted(v1alpha1.LeverTrafficShare, "", "shop/web"))
}

// TestProvenOfSeveralSets: nodes of one verdict share its error, and a group saves of what all its
// nodes draw.
func TestProvenOfSeveralSets(t *testing.T) {
	memory := adoptedOnTwoClasses(t)
	proven := func(nodes ...string) map[v1alpha1.Lever]v1alpha1.Saving {
		tally := policyTally{metered: map[string]units.Watts{}, acting: actingLevers{}}
		for _, node := range nodes {
			tally.metered[node] = 1000
			tally.acting.note(node, v1alpha1.LeverBuffering)
		}
		tally.acting.note("shop/web", v1alpha1.LeverTrafficShare)
		found := map[v1alpha1.Lever]v1alpha1.Saving{}
		memory.View("p", func(known *trials.Trials, _ *ledger.Ledger) {
			for _, saving := range provenNow(standingsOf(known, tally.acting), tally, func(string, v1alpha1.Lever) bool { return true }) {
				found[saving.Lever] = saving
			}
		})
		return found
	}
	half := func(nodes ...string) float64 {
		saving := proven(nodes...)[v1alpha1.LeverBuffering]
		return (saving.Watts.High.Float() - saving.Watts.Low.Float()) / 2
	}
	one := half("a")
	if alike := half("a", "b") / one; math.Abs(alike-2) > 0.05 {
		t.Errorf("the interval of two nodes of a verdict is %.2f times that of one, want 2", alike)
	}
	if other := half("a", "c") / one; math.Abs(other-math.Sqrt2) > 0.05 {
		t.Errorf("the interval of nodes of two verdicts is %.2f times that of one, want 1.4", other)
	}
	if saving, reported := proven("a", "b")[v1alpha1.LeverTrafficShare]; reported {
		t.Errorf("a group saves %+v of nodes without a meter", saving)
	}
	want, _ := statuses.Decimal(2000*math.Expm1(0.05), savedDigits)
	if saving := proven("a", "c")[v1alpha1.LeverTrafficShare]; saving.Watts.Value != want || saving.Watts.Low.Float() <= 0 {
		t.Errorf("a group on two nodes saves %+v, want %s W", saving, want)
	}
}
