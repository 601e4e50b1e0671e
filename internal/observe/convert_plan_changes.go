package observe

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

// recentChanges leaves out what no manager writes.
func recentChanges(changes []v1alpha1.RecentChange) []model.Change {
	var out []model.Change
	for _, change := range changes {
		if change.VMs > 0 && !change.Time.IsZero() {
			out = append(out, model.Change{Time: change.Time.UTC(), VMs: int(change.VMs)})
		}
	}
	return out
}

// apiChanges writes changes as the API holds them, whose times have seconds.
func apiChanges(changes []model.Change) []v1alpha1.RecentChange {
	var out []v1alpha1.RecentChange
	for _, change := range changes {
		out = append(out, v1alpha1.RecentChange{Time: metav1.Time{Time: change.Time.Truncate(time.Second)}, VMs: int32(change.VMs)})
	}
	return out
}
