package trials

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/statuses"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

const (
	// mostUnitsNamed in an Event: NodePlans and groups tell of each.
	mostUnitsNamed = 5
	// maxNote is what the API takes of an Event's text.
	maxNote = 1024
)

// proofReason is the reason of the Event that tells of news. Empty: none does.
func proofReason(kind proof.Kind) string {
	switch kind {
	case proof.TrialStarted:
		return v1alpha1.ReasonTrialStarted
	case proof.TrialEnded:
		return v1alpha1.ReasonTrialEnded
	case proof.Adopted, proof.AdoptedOnUnit:
		return v1alpha1.ReasonLeverAdopted
	case proof.Rejected, proof.RejectedOnUnit:
		return v1alpha1.ReasonRejectedByTrial
	case proof.Undecided:
		return v1alpha1.ReasonTrialUndecided
	case proof.Retrial:
		return v1alpha1.ReasonLeverRetried
	}
	return ""
}

// reportProof sends an Event about a policy for each of its news. What happened is decided by
// then: the Event is not asked for again when it is lost.
func reportProof(recorder events.EventRecorder, policy *v1alpha1.EnergyPolicy, news []proof.News) {
	for i := range news {
		n := &news[i]
		reason := proofReason(n.Kind)
		if reason == "" {
			continue
		}
		kind := corev1.EventTypeNormal
		if reason == v1alpha1.ReasonRejectedByTrial {
			kind = corev1.EventTypeWarning
		}
		recorder.Eventf(policy, nil, kind, reason, "Prove", "%s", proofNote(n))
	}
}

func proofNote(n *proof.News) string {
	note := "lever " + string(n.Lever)
	if n.Class != (verify.Class{}) {
		note += " on " + n.Class.String()
	}
	if len(n.Units) > 0 {
		note += " (" + strings.Join(n.Units[:min(len(n.Units), mostUnitsNamed)], ", ")
		if more := len(n.Units) - mostUnitsNamed; more > 0 {
			note += fmt.Sprintf(" and %d more", more)
		}
		note += ")"
	}
	return statuses.Cut(note+": "+n.Message, maxNote)
}
