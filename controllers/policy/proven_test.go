package policy

import (
	"math"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/controllertest"
	"github.com/joulevirt/joulevirt/controllers/statuses"
	"github.com/joulevirt/joulevirt/internal/observe/proofs"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// adoptedOnTwoClasses has adopted Buffering on nodes a and b of one class and on
// c of another, and TrafficShare on a group of a and c.
func adoptedOnTwoClasses(t *testing.T) *proofs.Store {
	t.Helper()
	memory := proofs.NewStore()
	class := func(workload string) verify.Class {
		return verify.Class{CPUModel: "Xeon", Kernel: "6.12", Workload: workload}
	}
	loadAdopted(t, memory, adoption{v1alpha1.LeverBuffering, class("Interactive")}, adoption{v1alpha1.LeverBuffering, class("Throughput")},
		adoption{v1alpha1.LeverTrafficShare, class("Group")})
	unit := func(name, workload string, lever v1alpha1.Lever, nodes ...string) proof.Unit {
		return proof.Unit{
			Name: name, Nodes: nodes, Class: class(workload), Ready: true,
			Meter: verify.Meter{Interval: time.Second}, Candidates: []proof.Candidate{{Lever: lever, Watts: 5}},
		}
	}
	for minute := range 2 {
		memory.Round("p", []proof.Unit{
			unit("a", "Interactive", v1alpha1.LeverBuffering, "a"), unit("b", "Interactive", v1alpha1.LeverBuffering, "b"),
			unit("c", "Throughput", v1alpha1.LeverBuffering, "c"), unit("shop/web", "Group", v1alpha1.LeverTrafficShare, "a", "c"),
		}, proof.Settings{HoldBack: 0.05, Confidence: 0.95}, controllertest.StatusTime().Add(time.Duration(minute)*time.Minute))
	}
	return memory
}

// allActing has such nodes draw a kilowatt each, with Buffering in force, and the group.
func allActing(nodes ...string) provenBy {
	by := provenBy{metered: map[string]units.Watts{}, acting: actingLevers{}, now: controllertest.StatusTime()}
	for _, node := range nodes {
		by.metered[node] = 1000
		by.acting.note(node, v1alpha1.LeverBuffering)
	}
	by.acting.note("shop/web", v1alpha1.LeverTrafficShare)
	return by
}

// TestProvenOfSeveralClasses: errors that nodes share are those of their class, and a group
// saves of what all its nodes draw.
func TestProvenOfSeveralClasses(t *testing.T) {
	memory := adoptedOnTwoClasses(t)
	proven := func(nodes ...string) map[v1alpha1.Lever]v1alpha1.Saving {
		by, found := allActing(nodes...), map[v1alpha1.Lever]v1alpha1.Saving{}
		memory.View("p", func(p *proof.Proofs, _ *ledger.Ledger) {
			all := provenNow(p, by)
			for _, saving := range all {
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
	// A part of the error is common to nodes of a class, and does not average out.
	if alike := half("a", "b") / one; alike < 1.55 || alike > 2.1 {
		t.Errorf("the interval of two nodes of a class is %.2f times that of one, want 1.6 to 2", alike)
	}
	if other := half("a", "c") / one; math.Abs(other-math.Sqrt2) > 0.15 {
		t.Errorf("the interval of nodes of two classes is %.2f times that of one, want 1.4", other)
	}
	if saving, reported := proven("a", "b")[v1alpha1.LeverTrafficShare]; reported {
		t.Errorf("a group saves %+v of nodes without a meter", saving)
	}
	want, _ := statuses.Decimal(2000*math.Expm1(0.05), savedDigits)
	if saving := proven("a", "c")[v1alpha1.LeverTrafficShare]; saving.Watts.Value != want || saving.Watts.Low.Float() <= 0 {
		t.Errorf("a group on two nodes saves %+v, want %s W", saving, want)
	}
}
