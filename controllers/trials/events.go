package trials

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/statuses"
	"github.com/joulevirt/joulevirt/internal/trials"
)

const (
	// mostUnitsNamed in an Event: NodePlans and groups tell of each.
	mostUnitsNamed = 5
	// maxNote is what the API takes of an Event's text.
	maxNote = 1024
)

// report sends an Event about a policy for each decision.
func report(recorder events.EventRecorder, policy *v1alpha1.EnergyPolicy, decided []trials.Event) {
	for i := range decided {
		e := &decided[i]
		kind := corev1.EventTypeNormal
		if e.Reason == v1alpha1.ReasonRejectedByTrial {
			kind = corev1.EventTypeWarning
		}
		recorder.Eventf(policy, nil, kind, e.Reason, "Prove", "%s", noteOf(e))
	}
}

func noteOf(e *trials.Event) string {
	units := strings.Join(e.Units[:min(len(e.Units), mostUnitsNamed)], ", ")
	if more := len(e.Units) - mostUnitsNamed; more > 0 {
		units += fmt.Sprintf(" and %d more", more)
	}
	return statuses.Cut(fmt.Sprintf("lever %s on %s (%s): %s", e.Lever, e.Set, units, e.Message), maxNote)
}
