package observe

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

// digestLength is 64 bits: what is looked for is what somebody did by hand.
const digestLength = 16

// digest of all of a plan but the digest itself. A revision would not do: it stays when
// VMs go, and says nothing of permissions. A new version must find the same of a plan that
// was stored before: fields keep their order, and new ones are left out when they are empty.
func digest(spec v1alpha1.NodePlanSpec) string {
	spec.Digest = ""
	text, err := json.Marshal(spec)
	if err != nil {
		return "" // of fields that are all written as text, which cannot fail
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:digestLength]
}

// Edited tells whether a plan is not as a manager wrote it. One without a digest is of a
// manager that wrote none, and a recommendation then only trusted where its revision is that
// of what it does: an approval names a revision and not what it stands for.
func Edited(plan *v1alpha1.NodePlan) bool {
	if plan.Spec.Digest == "" {
		return plan.Spec.RecommendedAt != nil && plan.Spec.Revision != model.Revision(Plan(plan).VMs)
	}
	return plan.Spec.Digest != digest(plan.Spec)
}
