package controllers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/interference"
)

// The API's bounds.
const (
	maxDisturbedExamples = 20
	maxDisturbedMessage  = 512
)

// disturbedTally counts a profile's VMs by what keeps them from their network work.
type disturbedTally struct {
	counts v1alpha1.InterferenceStatus
	vms    []disturbedVM
}

type disturbedVM struct {
	name, node string
	model.Disturbance
}

func (t *disturbedTally) add(name, node string, d model.Disturbance) {
	switch d.Verdict {
	case model.InterferenceStable:
		t.counts.Stable++
		return
	case model.InterferenceCoRunner:
		t.counts.CoRunner++
	case model.InterferenceSelf:
		t.counts.Self++
	default:
		t.counts.Unknown++
		return
	}
	t.vms = append(t.vms, disturbedVM{name, node, d})
}

func (t *disturbedTally) known() int32 { return t.counts.Stable + t.counts.CoRunner + t.counts.Self }

// status returns what the API says: nil while nothing is known of any VM. Of a VM of
// which before said the same, but for the figures, it keeps the words: figures change
// with each round, and each change would be a write.
func (t *disturbedTally) status(before *v1alpha1.InterferenceStatus) *v1alpha1.InterferenceStatus {
	if t.known() == 0 {
		return nil
	}
	slices.SortFunc(t.vms, func(x, y disturbedVM) int {
		return cmp.Or(x.Since.Compare(y.Since), cmp.Compare(x.name, y.name))
	})
	out := t.counts
	for _, vm := range t.vms[:min(len(t.vms), maxDisturbedExamples)] {
		out.Examples = append(out.Examples, keptWords(before, v1alpha1.DisturbedVM{
			Name: vm.name, Node: vm.node, Verdict: v1alpha1.Interference(vm.Verdict),
			Since: metav1.NewTime(vm.Since).Rfc3339Copy(), Message: disturbedMessage(vm.Disturbance),
		}))
	}
	return &out
}

func keptWords(before *v1alpha1.InterferenceStatus, now v1alpha1.DisturbedVM) v1alpha1.DisturbedVM {
	if before == nil {
		return now
	}
	for _, was := range before.Examples {
		same := was.Name == now.Name && was.Node == now.Node && was.Verdict == now.Verdict && was.Since.Equal(&now.Since)
		if same && withoutFigures(was.Message) == withoutFigures(now.Message) {
			return was
		}
	}
	return now
}

// withoutFigures leaves out digits, and the points between them.
func withoutFigures(words string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) || r == '.' {
			return -1
		}
		return r
	}, words)
}

// disturbedMessage names the evidence, and what would help.
func disturbedMessage(d model.Disturbance) string {
	var signs []string
	for _, evidence := range d.Evidence {
		signs = append(signs, evidenceWords(evidence))
	}
	words := strings.Join(signs, ", ")
	if advice := interference.Advice(d); advice != "" {
		words = strings.TrimPrefix(words+": "+advice, ": ")
	}
	return cut(words, maxDisturbedMessage)
}

func evidenceWords(e model.Evidence) string {
	switch e.Sign {
	case model.SignSteal:
		return fmt.Sprintf("a vCPU waits %.1f %% of its time for a CPU (affected from %g %% on)", e.Value, e.Limit)
	case model.SignRunQueueWait:
		return fmt.Sprintf("the threads that move its packets wait %.1f %% of a CPU (from %g %% on)", e.Value, e.Limit)
	case model.SignDrops:
		return fmt.Sprintf("its taps drop %.0f packets in a million (from %g on)", e.Value, e.Limit)
	case model.SignBacklog:
		return fmt.Sprintf("%.0f bytes wait in front of its taps (from %g on)", e.Value, e.Limit)
	case model.SignThroughput:
		return fmt.Sprintf("its traffic is %.0f %% of its own baseline (below %g %%)", e.Value, e.Limit)
	case model.SignOwnUse:
		return fmt.Sprintf("its busiest vCPU works %.0f %% of the time (from %g %% on)", e.Value, e.Limit)
	}
	return fmt.Sprintf("%s %.1f (limit %g)", e.Sign, e.Value, e.Limit)
}

// condition tells whether any VM is kept from its network work. Its words have no
// figures that change while the verdicts stay.
func (t *disturbedTally) condition() metav1.Condition {
	out := metav1.Condition{Type: v1alpha1.ConditionDisturbed, Status: metav1.ConditionTrue}
	switch known := t.known(); {
	case known == 0:
		out.Status, out.Reason = metav1.ConditionUnknown, v1alpha1.ReasonAwaitingRates
		out.Message = "no VM of the profile was seen for long enough since this manager leads: that takes some minutes of rates from the agents of the VMs' nodes"
	case t.counts.CoRunner > 0:
		out.Reason = v1alpha1.ReasonCoRunners
		out.Message = fmt.Sprintf("other work on the same cores keeps %d of %d VMs from their network work%s: see status.interference",
			t.counts.CoRunner, known, t.ownComputing())
	case t.counts.Self > 0:
		out.Reason = v1alpha1.ReasonOwnComputing
		out.Message = fmt.Sprintf("their own computing keeps %d of %d VMs from their network work: see status.interference", t.counts.Self, known)
	default:
		out.Status, out.Reason = metav1.ConditionFalse, v1alpha1.ReasonAllStable
		out.Message = "no VM that is known is kept from its network work"
	}
	return out
}

func (t *disturbedTally) ownComputing() string {
	if t.counts.Self == 0 {
		return ""
	}
	return fmt.Sprintf(", their own computing %d", t.counts.Self)
}
