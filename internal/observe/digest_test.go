package observe

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// A plan that was stored and read is not taken for an edited one, and each edit is seen.
func TestEdited(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 9))
	for range 200 {
		plan := model.Plan{Policy: "p", Mode: model.ModeRecommend, Reason: model.ReasonPlanned, Revision: "r"}
		plan.RecommendedAt = time.Date(2026, 3, 1, 12, 0, 0, 999, time.Local)
		plan.Changes = []model.Change{{Time: plan.RecommendedAt, VMs: 2}}
		for i := range 1 + random.IntN(4) {
			plan.VMs = append(plan.VMs, randomVMPlan(random, fmt.Sprintf("pod-%d", i)))
		}
		stored, err := json.Marshal(NodePlanSpec(plan))
		if err != nil {
			t.Fatal(err)
		}
		for name, edit := range map[string]func(*v1alpha1.NodePlanSpec){
			"":           func(*v1alpha1.NodePlanSpec) {},
			"permission": func(s *v1alpha1.NodePlanSpec) { s.Apply = true },
			"revision":   func(s *v1alpha1.NodePlanSpec) { s.Revision = "mine" },
			"VM":         func(s *v1alpha1.NodePlanSpec) { s.VMs = s.VMs[1:] },
			"pins": func(s *v1alpha1.NodePlanSpec) {
				s.VMs[0].Affinity = affinityAction(&model.VMPlan{Pins: []model.Pin{{CPUs: units.NewCPUSet(999)}}})
			},
			"memory":      func(s *v1alpha1.NodePlanSpec) { s.RecentChanges = nil },
			"time":        func(s *v1alpha1.NodePlanSpec) { s.RecommendedAt = &metav1.Time{Time: time.Now()} },
			"digest":      func(s *v1alpha1.NodePlanSpec) { s.Digest = "mine" },
			"digest gone": func(s *v1alpha1.NodePlanSpec) { s.Digest = "" },
		} {
			var read v1alpha1.NodePlan
			if err := json.Unmarshal(stored, &read.Spec); err != nil {
				t.Fatal(err)
			}
			edit(&read.Spec)
			if got := Edited(&read); got != (name != "") {
				t.Fatalf("edit of %q: edited %t of %s", name, got, stored)
			}
		}
	}
	// Before there were digests, what was enforced was right.
	if Edited(&v1alpha1.NodePlan{Spec: v1alpha1.NodePlanSpec{Mode: v1alpha1.ModeEnforce, Apply: true}}) {
		t.Error("a plan without a digest is taken for an edited one")
	}
}

// An upgrade from a version without digests leaves recommendations, and what was approved of
// them, as they are; what is not what its revision says is made anew.
func TestRecommendationsFromBeforeDigests(t *testing.T) {
	plan := model.Plan{Policy: "p", Mode: model.ModeRecommend, Reason: model.ReasonPlanned, RecommendedAt: time.Unix(1e9, 0)}
	plan.VMs = []model.VMPlan{{PodUID: "a", Pins: []model.Pin{{CPUs: units.NewCPUSet(2, 3)}}}}
	plan.Revision = model.Revision(plan.VMs)
	for name, tc := range map[string]struct {
		edit func(*v1alpha1.NodePlanSpec)
		want bool
	}{
		"as written":        {func(*v1alpha1.NodePlanSpec) {}, false},
		"and approved":      {func(s *v1alpha1.NodePlanSpec) { s.Apply = true }, false},
		"other pins":        {func(s *v1alpha1.NodePlanSpec) { s.VMs[0].Affinity.VCPUs[0].CPUs = "4-5" }, true},
		"pins that are not": {func(s *v1alpha1.NodePlanSpec) { s.VMs[0].Affinity.VCPUs[0].CPUs = "mine" }, true},
		"another revision":  {func(s *v1alpha1.NodePlanSpec) { s.Revision = "mine" }, true},
	} {
		old := v1alpha1.NodePlan{Spec: NodePlanSpec(plan)}
		old.Spec.Digest = ""
		tc.edit(&old.Spec)
		if got := Edited(&old); got != tc.want {
			t.Errorf("%s: edited %t, want %t", name, got, tc.want)
		}
	}
}

// A plan that a version before stored has the digest that it had: or an upgrade would make
// all plans anew.
func TestDigestsStay(t *testing.T) {
	const stored = `{"policy":"p","mode":"Recommend","revision":"r","apply":true,"recommendedAt":"2026-03-01T12:00:00Z",
"replacedRevision":"q","reason":"Planned","message":"m","excludedCPUs":"0-1",
"vms":[{"podUID":"a","namespace":"n","name":"v","affinity":{"vcpus":[{"vcpu":0,"cpus":"2-3"}]},"slice":{"microseconds":100},
"reasons":[{"lever":"Affinity","reason":"Pinned","message":"m"}]}],"recentChanges":[{"time":"2026-03-01T12:00:00Z","vms":1}],
"trials":[{"lever":"Affinity","seed":1,"start":"2026-03-01T12:00:00Z","blockLength":"10m0s","washOut":"1m0s","blocks":2,"offBlocks":[1],"otherwise":true}]}`
	var spec v1alpha1.NodePlanSpec
	if err := json.Unmarshal([]byte(stored), &spec); err != nil {
		t.Fatal(err)
	}
	if got, want := digest(spec), "5c31584a41939bfb"; got != want {
		t.Errorf("digest %s, was %s", got, want)
	}
}
