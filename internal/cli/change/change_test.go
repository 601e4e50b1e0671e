package change

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
)

func now() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// scene is a policy that recommends on two nodes, and one that enforces.
func scene() *facts.Facts {
	policy := func(name string, mode v1alpha1.PolicyMode) v1alpha1.EnergyPolicy {
		return v1alpha1.EnergyPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "7"},
			Spec:       v1alpha1.EnergyPolicySpec{Mode: mode},
		}
	}
	plan := func(node, policy, revision string, mode v1alpha1.PolicyMode) v1alpha1.NodePlan {
		at := metav1.NewTime(now())
		p := v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Name: node}}
		p.Spec = v1alpha1.NodePlanSpec{Policy: policy, Mode: mode, Revision: revision}
		if mode == v1alpha1.ModeRecommend {
			p.Spec.RecommendedAt = &at
		}
		return p
	}
	profile := v1alpha1.VMNetworkProfile{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	profile.Status.Traffic = &v1alpha1.TrafficStatus{
		Revision: "r-group", State: v1alpha1.LeverRecommended, Shares: []v1alpha1.MemberShare{{Name: "web-0", Node: "a"}, {Name: "web-1", Node: "c"}},
	}
	return &facts.Facts{
		Now:      now(),
		Policies: []v1alpha1.EnergyPolicy{policy("p", v1alpha1.ModeRecommend), policy("q", v1alpha1.ModeEnforce)},
		Plans: []v1alpha1.NodePlan{
			plan("a", "p", "r-a", v1alpha1.ModeRecommend), plan("b", "p", "r-b", v1alpha1.ModeRecommend),
			plan("c", "q", "r-c", v1alpha1.ModeEnforce),
		},
		Profiles: []v1alpha1.VMNetworkProfile{profile},
	}
}

func TestApprove(t *testing.T) {
	for name, tc := range map[string]struct {
		approved []string
		names    []string
		prune    bool
		want     []string
		done     string
		err      string
	}{
		"one":             {nil, []string{"r-a"}, false, []string{"r-a"}, "1 revision approved", ""},
		"group":           {[]string{"r-a"}, []string{"r-group"}, false, []string{"r-a", "r-group"}, "1 revision approved", ""},
		"all of a policy": {nil, []string{"p"}, false, []string{"r-a", "r-b", "r-group"}, "3 revisions approved", ""},
		"again":           {[]string{"r-a"}, []string{"r-a"}, false, nil, "unchanged: all is approved already", ""},
		"prune":           {[]string{"r-a", "gone"}, []string{"p"}, true, []string{"r-a", "r-b", "r-group"}, "2 revisions approved, 1 approval removed", ""},
		"replaced":        {nil, []string{"old-a"}, false, nil, "", "nor the revision of a current recommendation"},
		"enforced":        {nil, []string{"r-c"}, false, nil, "", "is of mode Enforce, which needs no approval"},
		"wrong mode":      {nil, []string{"q"}, false, nil, "", "EnergyPolicy q is in mode Enforce"},
		"unknown":         {nil, []string{"x"}, false, nil, "", `"x" is neither an EnergyPolicy nor the revision of a current recommendation: it may have expired; recommended now: r-a of node a`},
		"one is unknown":  {nil, []string{"r-a", "x"}, false, nil, "", `"x" is neither an EnergyPolicy`},
		"too many":        {many(maxApprovals), []string{"r-a"}, false, nil, "", "add --prune"},
	} {
		t.Run(name, func(t *testing.T) {
			f := scene()
			f.Policies[0].Spec.Approvals = tc.approved
			changes, err := Approve(f, tc.names, tc.prune)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || changes != nil {
					t.Errorf("changes %v, error %v, want none, and %q", changes, err, tc.err)
				}
				return
			}
			if err != nil || len(changes) != 1 {
				t.Fatalf("changes %v, error %v, want one change", changes, err)
			}
			got, _ := changes[0].Fields["approvals"].([]string)
			if diff := cmp.Diff(tc.want, got); diff != "" || changes[0].Done != tc.done {
				t.Errorf("%q, want %q (-want +got):\n%s", changes[0].Done, tc.done, diff)
			}
			if patch, err := changes[0].Patch(); err != nil || tc.want != nil && !strings.Contains(string(patch), `"resourceVersion":"7"`) {
				t.Errorf("patch %s (%v), want the version that the list was worked out by", patch, err)
			}
		})
	}
}

func many(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprint(i)
	}
	return out
}

func TestPause(t *testing.T) {
	f := scene()
	changes, err := Pause(f.Policies, []string{"p"}, true)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := changes[0].Patch()
	if want := `{"spec":{"paused":true}}`; err != nil || string(patch) != want {
		t.Errorf("patch %s (%v), want %s", patch, err, want)
	}
	f.Policies[0].Spec.Paused = true
	changes, err = Pause(f.Policies, []string{"p", "q"}, false)
	if err != nil {
		t.Fatal(err)
	}
	if patch, err = changes[0].Patch(); err != nil || !strings.Contains(string(patch), `"paused":null`) {
		t.Errorf("patch %s (%v), want the field removed", patch, err)
	}
	if len(changes[1].Fields) != 0 || !strings.Contains(changes[1].Done, "not paused") {
		t.Errorf("change %+v of a policy that is not paused, want none", changes[1])
	}
	if _, err = Pause(f.Policies, []string{"x"}, true); err == nil || !strings.Contains(err.Error(), "there are p, q") {
		t.Errorf("an unknown policy: %v, want those that are there named", err)
	}
}

func TestOwnedBy(t *testing.T) {
	f := scene()
	f.Policies[0].ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "manager", Operation: "Update", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:paused":{}}}`)},
		{Manager: "argocd", Operation: "Apply", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:mode":{},"f:approvals":{}}}`)},
	}
	paused := Change{Policy: &f.Policies[0], Fields: map[string]any{"paused": true}}
	if owner, _ := paused.OwnedBy(); owner != "" {
		t.Errorf("spec.paused is applied by %s", owner)
	}
	approved := Change{Policy: &f.Policies[0], Fields: map[string]any{"approvals": []string{"r"}}}
	if owner, field := approved.OwnedBy(); owner != "argocd" || field != "spec.approvals" {
		t.Errorf("%s applies %s, want argocd and spec.approvals", owner, field)
	}
}
