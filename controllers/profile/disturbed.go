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
	"github.com/joulevirt/joulevirt/internal/units"
)

// The API's bounds.
const (
	maxDisturbedVMs     = 20
	maxDisturbedMessage = 512
)

// disturbedTally counts a profile's VMs by what keeps them from their network work.
type disturbedTally struct {
	// known VMs were judged, and so many are kept from it by each cause.
	known int
	by    map[v1alpha1.Cause]int
	vms   []disturbedVM
}

type disturbedVM struct {
	name, node string
	model.Disturbance
}

func (t *disturbedTally) add(name, node string, d model.Disturbance) {
	if d.Verdict == v1alpha1.CauseUnknown {
		return
	}
	t.known++
	if !d.Verdict.Disturbs() {
		return
	}
	if t.by == nil {
		t.by = map[v1alpha1.Cause]int{}
	}
	t.by[d.Verdict]++
	t.vms = append(t.vms, disturbedVM{name, node, d})
}

// status returns the VMs that have been disturbed for longest. The message of a VM changes only if more
// than its figures do: figures change with each round, and each change would be a write.
func (t *disturbedTally) status(before []v1alpha1.DisturbedVM) []v1alpha1.DisturbedVM {
	slices.SortFunc(t.vms, func(x, y disturbedVM) int {
		return cmp.Or(x.Since.Compare(y.Since), cmp.Compare(x.name, y.name))
	})
	var out []v1alpha1.DisturbedVM
	for _, vm := range t.vms[:min(len(t.vms), maxDisturbedVMs)] {
		out = append(out, withFormerMessage(before, v1alpha1.DisturbedVM{
			Name: vm.name, Node: vm.node, Reason: vm.Verdict,
			Since: metav1.NewTime(vm.Since).Rfc3339Copy(), LostCores: lostCores(vm.Disturbance), Message: disturbedMessage(vm.Disturbance),
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
		signs = append(signs, evidenceWords(evidence, d.Limit))
	}
	words := strings.Join(signs, ", ")
	if advice := symptoms.Advice(d); advice != "" {
		words = strings.TrimPrefix(words+": "+advice, ": ")
	}
	return statuses.Cut(words, maxDisturbedMessage)
}

// lostCores are what a VM lacks for all causes together. Empty: nothing.
func lostCores(d model.Disturbance) v1alpha1.Decimal {
	if len(d.Lost) == 0 {
		return ""
	}
	sum := 0.0
	for _, loss := range d.Lost {
		sum += float64(loss.Cores)
	}
	lost, _ := statuses.Decimal(sum, 2)
	return lost
}

func evidenceWords(e model.Evidence, limit units.Cores) string {
	switch e.Sign {
	case model.SignThrottled:
		return fmt.Sprintf("its CPU limit of %.3g was used up in %.0f %% of the periods, and held up its network threads too (from %g %% on)", limit, e.Value, e.Limit)
	case model.SignOutweighed:
		return fmt.Sprintf("VMs with at least twice its weight for each vCPU run %.0f %% of what others run on its CPUs (from %g %% on)", e.Value, e.Limit)
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
	if t.known == 0 {
		return metav1.Condition{
			Type: v1alpha1.ConditionDisturbed, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonNoRates,
			Message: "no VM of the profile was seen for long enough since this manager leads: that takes some minutes of rates from the agents of the VMs' nodes",
		}
	}
	out := metav1.Condition{
		Type: v1alpha1.ConditionDisturbed, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonAllStable,
		Message: "no VM that is known is kept from its network work",
	}
	var by []string
	for _, cause := range v1alpha1.Causes() {
		if n := t.by[cause]; n > 0 {
			by = append(by, fmt.Sprintf("%d by %s", n, causeWords(cause)))
			if out.Status == metav1.ConditionFalse {
				out.Status, out.Reason = metav1.ConditionTrue, string(cause)
			}
		}
	}
	if len(by) > 0 {
		out.Message = fmt.Sprintf("%d of %d VMs are kept from their network work (%s): see status.disturbedVMs", len(t.vms), t.known, strings.Join(by, ", "))
	}
	return out
}

func causeWords(cause v1alpha1.Cause) string {
	switch cause {
	case v1alpha1.CauseOwnLimit:
		return "the CPU limits of their pods"
	case v1alpha1.CauseOwnWeight:
		return "VMs that have more weight"
	case v1alpha1.CauseOwnWork:
		return "their own computing"
	}
	return "other work on the same cores"
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
		if vm.Reason == v1alpha1.CauseFlood || reported || r.Clock.Since(vm.Since.Time) > NewsOfDisturbance || !r.pace.allow(key, r.Clock) {
			continue
		}
		r.Recorder.Eventf(profile, nil, corev1.EventTypeWarning, string(vm.Reason), "Detect", "VM %s on node %s: %s", vm.Name, vm.Node, vm.Message)
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
