package controllers

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/proofs"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/evidence"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// adoptedOnTwoClasses has adopted by evidence Buffering on nodes a and b of one class and on
// c of another, and TrafficShare on a group of a and c.
func adoptedOnTwoClasses(t *testing.T) *proofs.Store {
	t.Helper()
	entry := strings.Replace(strings.SplitAfter(evidenceOfBuffering, "entries:\n")[1], "between: 0.01", "between: 0", 1)
	file, err := evidence.Import("file", []byte(strings.Split(evidenceOfBuffering, "- lever")[0]+entry+
		strings.Replace(entry, "Interactive", "Throughput", 1)+strings.NewReplacer("Interactive", "Group", "Buffering", "TrafficShare").Replace(entry)))
	if err != nil {
		t.Fatal(err)
	}
	memory := proofs.NewStore()
	if err := memory.Load("p", nil, nil); err != nil {
		t.Fatal(err)
	}
	memory.View("p", func(p *proof.Proofs, _ *ledger.Ledger) { p.Import(file) })
	unit := func(name, workload string, lever model.Lever, nodes ...string) proof.Unit {
		return proof.Unit{
			Name: name, Nodes: nodes, Class: verify.Class{CPUModel: "Xeon", Kernel: "6.12", Workload: workload}, Ready: true,
			Meter: verify.Meter{Interval: time.Second, Noise: 0.01}, Candidates: []proof.Candidate{{Lever: lever, Watts: 5}},
		}
	}
	for minute := range 2 {
		memory.Round("p", []proof.Unit{
			unit("a", "Interactive", model.LeverBuffering, "a"), unit("b", "Interactive", model.LeverBuffering, "b"),
			unit("c", "Throughput", model.LeverBuffering, "c"), unit("shop/web", "Group", model.LeverTrafficShare, "a", "c"),
		}, proof.Settings{HoldBack: 0.05, Confidence: 0.95}, statusTime().Add(time.Duration(minute)*time.Minute))
	}
	return memory
}

// allActing has such nodes draw a kilowatt each, with Buffering in force, and the group.
func allActing(nodes ...string) provenBy {
	by := provenBy{metered: map[string]units.Watts{}, acting: actingLevers{}, now: statusTime()}
	for _, node := range nodes {
		by.metered[node] = 1000
		by.acting.note(node, model.LeverBuffering)
	}
	by.acting.note("shop/web", model.LeverTrafficShare)
	return by
}

// TestProvenOfSeveralClasses: errors that nodes share are those of their class, and a group
// saves of what all its nodes draw.
func TestProvenOfSeveralClasses(t *testing.T) {
	memory := adoptedOnTwoClasses(t)
	proven := func(nodes ...string) map[v1alpha1.Lever]v1alpha1.Saving {
		by, found := allActing(nodes...), map[v1alpha1.Lever]v1alpha1.Saving{}
		memory.View("p", func(p *proof.Proofs, _ *ledger.Ledger) {
			all, _ := provenNow(p, by, 0.95)
			for _, saving := range all {
				found[saving.Lever] = saving
			}
		})
		return found
	}
	half := func(nodes ...string) float64 {
		saving := proven(nodes...)[v1alpha1.LeverBuffering]
		return float64(saving.HighMilliwatts-saving.LowMilliwatts) / 2
	}
	one := half("a")
	if alike := half("a", "b") / one; math.Abs(alike-2) > 0.1 {
		t.Errorf("the interval of two nodes of a class is %.2f times that of one, want twice", alike)
	}
	if other := half("a", "c") / one; math.Abs(other-math.Sqrt2) > 0.15 {
		t.Errorf("the interval of nodes of two classes is %.2f times that of one, want 1.4", other)
	}
	if saving, told := proven("a", "b")[v1alpha1.LeverTrafficShare]; told {
		t.Errorf("a group saves %+v of nodes without a meter", saving)
	}
	want := roundMilliwatts(2000 * math.Expm1(0.05))
	if saving := proven("a", "c")[v1alpha1.LeverTrafficShare]; saving.Milliwatts != want || saving.LowMilliwatts <= 0 {
		t.Errorf("a group on two nodes saves %+v, want %d mW", saving, want)
	}
}

// TestProvenIsOfWhatActs: nothing is saved where an adopted lever is not in force, nor while it
// is held back.
func TestProvenIsOfWhatActs(t *testing.T) {
	memory := adoptedOnTwoClasses(t)
	var heldBack time.Time
	proofs, _ := memory.Of("p", "a")
	for i := range proofs {
		if s := proofs[i].Schedule; s != nil && proofs[i].Lever == model.LeverBuffering {
			heldBack = s.Start.Add(time.Duration(slices.Index(s.On, false)) * s.Block)
		}
	}
	if heldBack.IsZero() {
		t.Fatalf("node a holds nothing back: %+v", proofs)
	}
	for name, tc := range map[string]struct {
		change func(*provenBy)
		levers []v1alpha1.Lever
	}{
		"all act":              {func(*provenBy) {}, []v1alpha1.Lever{v1alpha1.LeverBuffering, v1alpha1.LeverTrafficShare}},
		"nothing acts":         {func(by *provenBy) { by.acting = nil }, nil},
		"another lever acts":   {func(by *provenBy) { by.acting = actingLevers{"a": {model.LeverAffinity: true}} }, nil},
		"the group alone acts": {func(by *provenBy) { delete(by.acting, "a"); delete(by.acting, "c") }, []v1alpha1.Lever{v1alpha1.LeverTrafficShare}},
		"held back on a":       {func(by *provenBy) { by.now, by.acting = heldBack, actingLevers{"a": by.acting["a"]} }, nil},
	} {
		by := allActing("a", "c")
		tc.change(&by)
		var levers []v1alpha1.Lever
		memory.View("p", func(p *proof.Proofs, _ *ledger.Ledger) {
			all, each := provenNow(p, by, 0.95)
			for _, saving := range all {
				levers = append(levers, saving.Lever)
			}
			if len(all) != len(each) && name != "all act" {
				t.Errorf("%s: units save %+v, and all %+v", name, each, all)
			}
		})
		if !slices.Equal(levers, tc.levers) {
			t.Errorf("%s: %v save, want %v", name, levers, tc.levers)
		}
	}
}

// TestProvenOfNodes: the parts of nodes add up to the whole, their intervals do not, and a
// group's part is of no node.
func TestProvenOfNodes(t *testing.T) {
	var all []v1alpha1.Saving
	var store provenStore
	adoptedOnTwoClasses(t).View("p", func(p *proof.Proofs, _ *ledger.Ledger) {
		saved, each := provenNow(p, allActing("a", "b", "c"), 0.95)
		all = saved
		store.put("p", each)
	})
	var sum, reach float64
	for _, of := range store.ofNodes("p") {
		if of.lever != model.LeverBuffering || !(of.watts.Low < of.watts.Value && of.watts.Value < of.watts.High) {
			t.Errorf("%+v, want a saving of Buffering within its interval", of)
		}
		sum += of.watts.Value
		reach += of.watts.High - of.watts.Value
	}
	for _, saving := range all {
		if half := float64(saving.HighMilliwatts-saving.Milliwatts) / milliwatts; saving.Lever == v1alpha1.LeverBuffering && (roundMilliwatts(sum) != saving.Milliwatts || reach <= half*1.05) {
			t.Errorf("nodes save %g W give or take %g W, all of them %+v", sum, reach, saving)
		}
	}
	if len(all) != 2 || len(store.ofNodes("p")) != 3 || store.ofNodes("q") != nil {
		t.Errorf("nodes save %+v, all %+v", store.ofNodes("p"), all)
	}
	if store.put("p", nil); len(store.ofNodes("p")) != 0 {
		t.Errorf("%+v is remembered of what acts no more", store.ofNodes("p"))
	}
}
