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
