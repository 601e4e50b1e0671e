package profile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/statuses"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/symptoms"
)

// The API's bounds.
const (
	maxDisturbedVMs     = 20
	maxDisturbedMessage = 512
)

// disturbedTally counts a profile's VMs by what keeps them from their network work.
type disturbedTally struct {
	// stable VMs are kept from it by nothing, coRunner VMs by other work on the same cores, and self VMs by
	// their own computing.
	stable, coRunner, self int
	vms                    []disturbedVM
}

type disturbedVM struct {
	name, node string
	model.Disturbance
}

func (t *disturbedTally) add(name, node string, d model.Disturbance) {
	switch d.Verdict {
	case v1alpha1.InterferenceStable:
		t.stable++
		return
	case v1alpha1.InterferenceCoRunner:
		t.coRunner++
	case v1alpha1.InterferenceSelf:
		t.self++
	default:
		return
	}
	t.vms = append(t.vms, disturbedVM{name, node, d})
}

func (t *disturbedTally) known() int { return t.stable + t.coRunner + t.self }

// status returns the VMs that have been disturbed for longest. The message of a VM changes only if more
// than its figures do: figures change with each round, and each change would be a write.
func (t *disturbedTally) status(before []v1alpha1.DisturbedVM) []v1alpha1.DisturbedVM {
	slices.SortFunc(t.vms, func(x, y disturbedVM) int {
		return cmp.Or(x.Since.Compare(y.Since), cmp.Compare(x.name, y.name))
	})
	var out []v1alpha1.DisturbedVM
	for _, vm := range t.vms[:min(len(t.vms), maxDisturbedVMs)] {
		out = append(out, withFormerMessage(before, v1alpha1.DisturbedVM{
			Name: vm.name, Node: vm.node, Reason: string(vm.Verdict),
			Since: metav1.NewTime(vm.Since).Rfc3339Copy(), Message: disturbedMessage(vm.Disturbance),
		}))
	}
	return out
}

// withFormerMessage returns a VM as the status had it before, if only figures differ.
func withFormerMessage(before []v1alpha1.DisturbedVM, now v1alpha1.DisturbedVM) v1alpha1.DisturbedVM {
	for _, was := range before {
		same := was.Name == now.Name && was.Node == now.Node && was.Reason == now.Reason && was.Since.Equal(&now.Since)
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
	if advice := symptoms.Advice(d); advice != "" {
		words = strings.TrimPrefix(words+": "+advice, ": ")
	}
	return statuses.Cut(words, maxDisturbedMessage)
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

// condition reports whether any VM is kept from its network work. Its words have no
// figures that change while the verdicts stay.
func (t *disturbedTally) condition() metav1.Condition {
	out := metav1.Condition{Type: v1alpha1.ConditionDisturbed, Status: metav1.ConditionTrue}
	switch known := t.known(); {
	case known == 0:
		out.Status, out.Reason = metav1.ConditionUnknown, v1alpha1.ReasonNoRates
		out.Message = "no VM of the profile was seen for long enough since this manager leads: that takes some minutes of rates from the agents of the VMs' nodes"
	case t.coRunner > 0:
		out.Reason = v1alpha1.ReasonCoRunners
		out.Message = fmt.Sprintf("other work on the same cores keeps %d of %d VMs from their network work%s: see status.disturbedVMs",
			t.coRunner, known, t.ownComputing())
	case t.self > 0:
		out.Reason = v1alpha1.ReasonOwnComputing
		out.Message = fmt.Sprintf("their own computing keeps %d of %d VMs from their network work: see status.disturbedVMs", t.self, known)
	default:
		out.Status, out.Reason = metav1.ConditionFalse, v1alpha1.ReasonAllStable
		out.Message = "no VM that is known is kept from its network work"
	}
	return out
}

func (t *disturbedTally) ownComputing() string {
	if t.self == 0 {
		return ""
	}
	return fmt.Sprintf(", their own computing %d", t.self)
}

const (
	// mostEvents of one profile in eventPeriod: the status has all, events are for
	// who watches.
	mostEvents  = 3
	eventPeriod = time.Minute
	// NewsOfDisturbance is the age at which a verdict is none any more: a VM that is
	// reported because others recovered was disturbed long before.
	NewsOfDisturbance = 5 * time.Minute
)

// reportDisturbed sends an event for each VM that the profile's status names as
// disturbed and did not before.
func (r *Reconciler) reportDisturbed(profile *v1alpha1.VMNetworkProfile, before []v1alpha1.DisturbedVM) {
	key := types.NamespacedName{Namespace: profile.Namespace, Name: profile.Name}
	for _, vm := range profile.Status.DisturbedVMs {
		reported := slices.ContainsFunc(before, func(was v1alpha1.DisturbedVM) bool { return was.Name == vm.Name && was.Reason == vm.Reason })
		if vm.Reason == v1alpha1.DisturbedByFlood || reported || r.Clock.Since(vm.Since.Time) > NewsOfDisturbance || !r.pace.allow(key, r.Clock) {
			continue
		}
		r.Recorder.Eventf(profile, nil, corev1.EventTypeWarning, vm.Reason, "Detect", "VM %s on node %s: %s", vm.Name, vm.Node, vm.Message)
	}
}

// eventPace bounds how many events a profile gets. The zero value is ready.
type eventPace struct {
	mu    sync.Mutex
	since time.Time
	sent  map[types.NamespacedName]int
}

// allow reports whether one more event of a profile may be sent now.
func (p *eventPace) allow(profile types.NamespacedName, clk clock.PassiveClock) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sent == nil || clk.Since(p.since) >= eventPeriod {
		p.since, p.sent = clk.Now(), map[types.NamespacedName]int{}
	}
	p.sent[profile]++
	return p.sent[profile] <= mostEvents
}
