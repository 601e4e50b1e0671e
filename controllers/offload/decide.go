package offload

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/routing"
	"github.com/joulevirt/joulevirt/internal/routing/pods"
)

// retry is how long a gateway that failed is left: what its node refuses would be refused again.
const retry = 30 * time.Second

// vmFacts are what is known of one VM.
type vmFacts struct {
	name, node string
	// pod is the VM's launcher pod. Nil: it does not run.
	pod *corev1.Pod
	// endpoint is true when the Service spreads new connections to the pod, and selected when it
	// does so as soon as the pod is active and ready.
	endpoint, selected bool
	permission         planner.Permission
	// off is true while a trial or hold-back has the VM serve itself. Its gateway stays, and is not in the
	// Service. standing says so at all times.
	off      bool
	standing string
	// share is empty for path Cache.
	share vmShare
	// wanted is the name of the gateway's pod: it stands for all that the pod is made of.
	wanted   string
	gateways []gateway
}

// gateway is the pod of a gateway.
type gateway struct {
	*corev1.Pod
	// endpoint is true when the Service spreads new connections to the gateway.
	endpoint bool
}

func (g *gateway) isEnding() bool { return g.DeletionTimestamp != nil }

func (g *gateway) hasFailed() bool {
	return g.Status.Phase == corev1.PodFailed || g.Status.Phase == corev1.PodSucceeded
}

// isStandby returns whether the Service does not select the gateway.
func (g *gateway) isStandby() bool { return g.Labels[v1alpha1.LabelServing] == v1alpha1.ServingStandby }

// of returns the UID of the launcher pod that the gateway is for.
func (g *gateway) of() types.UID { return types.UID(g.Labels[v1alpha1.LabelGateway]) }

// decision is what to do next for a VM, in this order.
type decision struct {
	// mark of the VM's pod. Nil: it stays.
	mark *pods.Mark
	// gateway that serves instead of the VM's pod, or is to. Nil: none does.
	gateway *gateway
	// place is the gateway's mark that has the Service select it, or not. Nil: it stays. Before it leaves,
	// the VM's pod has to serve.
	place *pods.Mark
	// remove are gateways that go. confirm is true when the VM's pod has to serve before.
	remove  []gateway
	confirm bool
	// create is true when a gateway is to be made.
	create bool
	// ready is true when clients reach the gateway alone, or, where the VM is to serve itself, the VM alone
	// and the gateway is ready.
	ready           bool
	reason, message string
}

// decide returns what to do for a VM of a HybridWorkload. refusal is why none of its VMs has a
// gateway; empty: they may. Clients always find somebody: a gateway is in the Service before its
// VM's pod leaves, and the pod is back before a gateway goes.
func decide(vm *vmFacts, holder string, refusal *routing.Refusal, now time.Time) decision {
	var d decision
	d.reason, d.message = denied(vm, holder, refusal)
	may := d.reason == ""
	known := false // a pod of the wanted name is there
	for _, g := range vm.gateways {
		known = known || g.Name == vm.wanted
		switch {
		case g.isEnding():
		case !may || g.Name != vm.wanted || g.hasFailed() && now.Sub(g.CreationTimestamp.Time) >= retry:
			d.remove = append(d.remove, g)
		case !g.hasFailed():
			d.gateway = &g
		}
	}
	ready := d.gateway != nil && routing.IsReady(d.gateway.Pod)
	serves := ready && d.gateway.endpoint && !vm.off
	if vm.pod != nil {
		d.mark = markOf(vm.pod, holder, serves)
		mark := pods.MarkOf(vm.pod)
		if d.mark != nil {
			mark = *d.mark
		}
		d.confirm = routing.IsReady(vm.pod) && vm.selected && mark.Serving == v1alpha1.ServingActive
		if d.confirm && !vm.endpoint {
			d.remove = nil // for now
		}
	}
	if d.gateway != nil && d.gateway.isStandby() != vm.off && (!vm.off || d.confirm && vm.endpoint) {
		d.place = &pods.Mark{Serving: map[bool]string{true: v1alpha1.ServingStandby, false: v1alpha1.ServingActive}[vm.off]}
	}
	d.ready = ready && d.mark == nil && d.place == nil && d.gateway.endpoint != vm.off && vm.endpoint == vm.off
	if !may {
		return d
	}
	d.create = !known && !vm.permission.Hold
	d.reason, d.message = describe(vm, &d, known)
	return d
}

// markOf returns the mark that a VM's pod is to get. Nil: it has it, or it is somebody else's.
func markOf(pod *corev1.Pod, holder string, standby bool) *pods.Mark {
	mark := pods.MarkOf(pod)
	want := mark
	switch {
	case mark.Profile != "" && mark.Profile != holder:
	case standby:
		want = pods.Mark{Serving: v1alpha1.ServingStandby, Profile: holder}
	case mark.Profile == holder:
		want = pods.Released(mark)
		want.Serving = v1alpha1.ServingActive
	}
	if want == mark {
		return nil
	}
	return &want
}

// denied returns why a VM may have no gateway, or nothing.
func denied(vm *vmFacts, holder string, refusal *routing.Refusal) (reason, message string) {
	switch {
	case refusal != nil:
		return refusal.Reason, refusal.Message
	case vm.share.refusal != nil:
		return vm.share.refusal.Reason, vm.share.refusal.Message
	case vm.permission.Undo:
		return vm.permission.Reason, vm.permission.Message
	case vm.pod == nil || pods.IsEnding(vm.pod):
		return v1alpha1.ReasonMemberNotReady, fmt.Sprintf("VM %s has no launcher pod that runs", vm.name)
	case !routing.IsReady(vm.pod):
		return v1alpha1.ReasonMemberNotReady, fmt.Sprintf("pod %s of VM %s is not ready", vm.pod.Name, vm.name)
	case vm.pod.Status.PodIP == "":
		return v1alpha1.ReasonMemberNotReady, fmt.Sprintf("pod %s of VM %s has no address", vm.pod.Name, vm.name)
	}
	if by := pods.MarkOf(vm.pod).Profile; by != "" && by != holder {
		return v1alpha1.ReasonServiceTaken, fmt.Sprintf("pod %s of VM %s is steered by %s: let the VM belong to one of the two", vm.pod.Name, vm.name, by)
	}
	return "", ""
}

// describe says how far a VM's gateway is that may be.
func describe(vm *vmFacts, d *decision, known bool) (reason, message string) {
	switch {
	case d.ready:
		return v1alpha1.ReasonGatewayServes, vm.standing
	case d.gateway != nil && tlsProblem(d.gateway.Pod) != "":
		return v1alpha1.ReasonGatewayTLS, tlsProblem(d.gateway.Pod)
	case d.gateway != nil:
		return v1alpha1.ReasonGatewayStarting, whyUnscheduled(d.gateway.Pod)
	case vm.permission.Hold && !known:
		return vm.permission.Reason, vm.permission.Message
	}
	for i := range vm.gateways {
		if g := &vm.gateways[i]; g.hasFailed() && !g.isEnding() {
			return v1alpha1.ReasonGatewayFailed, fmt.Sprintf("pod %s: %s %s", g.Name, g.Status.Reason, g.Status.Message)
		}
	}
	if known {
		return v1alpha1.ReasonGatewayEnding, ""
	}
	return v1alpha1.ReasonGatewayStarting, ""
}

// tlsProblem is why a gateway ended last, if that was its Secret or the VM's certificate. Empty: it was not.
func tlsProblem(pod *corev1.Pod) string {
	volume := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Secret != nil })
	if volume < 0 {
		return ""
	}
	for i := range pod.Status.ContainerStatuses {
		c := &pod.Status.ContainerStatuses[i]
		if ended := cmp.Or(c.State.Terminated, c.LastTerminationState.Terminated); ended != nil && ended.ExitCode == v1alpha1.TLSExitCode {
			lines := strings.Split(strings.TrimSpace(ended.Message), "\n")
			return fmt.Sprintf("Secret %s of spec.tls.secretName: %s", pod.Spec.Volumes[volume].Secret.SecretName, lines[len(lines)-1])
		}
	}
	return ""
}

// whyUnscheduled says why a pod has no node yet.
func whyUnscheduled(pod *corev1.Pod) string {
	at := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
	})
	if at < 0 {
		return ""
	}
	return fmt.Sprintf("pod %s is not scheduled: %s", pod.Name, pod.Status.Conditions[at].Message)
}
