package observe

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// digestLength is 64 bits: what is looked for is what somebody did by hand.
const digestLength = 16

// digest of all of a plan but the digest itself. A revision would not do: it stays when
// VMs go, and says nothing of permissions.
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
// manager that wrote none; a recommendation is only trusted with one, as an approval
// names a revision and not what it stands for.
func Edited(plan *v1alpha1.NodePlan) bool {
	if plan.Spec.Digest == "" {
		return plan.Spec.RecommendedAt != nil
	}
	return plan.Spec.Digest != digest(plan.Spec)
}
