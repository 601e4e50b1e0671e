package hostpower

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/bmc"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/power"
)

const (
	// settles is how long a node is cordoned before it is looked at again: the scheduler may still
	// bind a pod that it decided about before.
	settles = 30 * time.Second
	// shutsDown is how long the system has to shut down before its power is cut, and gives up how
	// long it may take at all.
	shutsDown = 5 * time.Minute
	givesUp   = 15 * time.Minute
	// sameBoot is after how long on a ready node is back that never went down.
	sameBoot = 5 * time.Minute
)

// hostOf is a host that something is done with.
type hostOf struct {
	*Reconciler
	ctx  context.Context //nolint:containedctx // of one step
	node *corev1.Node
	// was is the node as it is stored.
	was *corev1.Node
	*record
	now time.Time
	// host is nil until it is found.
	host bmc.Host
}

// step brings a host one step further to what was decided. All that is remembered is written before
// what it is about is done.
func (r *Reconciler) step(ctx context.Context, policy *v1alpha1.EnergyPolicy, name string, d power.Decision, deadline time.Duration) error {
	h := &hostOf{Reconciler: r, ctx: ctx, node: &corev1.Node{}, now: r.Clock.Now()}
	if err := r.Direct.Get(ctx, types.NamespacedName{Name: name}, h.node); err != nil {
		return err
	}
	h.was = h.node.DeepCopy()
	known, err := recordOf(h.node)
	if err != nil {
		return err
	}
	h.record = known
	if known == nil {
		if !d.Off || policy == nil || h.node.Spec.Unschedulable {
			return nil
		}
		return h.begin(policy)
	}
	if !h.node.Spec.Unschedulable && h.State != v1alpha1.HostPoweringOn && h.State != v1alpha1.HostFailed {
		d = power.Decision{On: true, Hold: model.Hold{Reason: v1alpha1.ReasonNodeFrozen, Message: "somebody uncordoned the node"}}
	}
	switch h.State {
	case v1alpha1.HostCordoned:
		return h.lastLook(d)
	case v1alpha1.HostShuttingDown:
		return h.shutDown(d)
	case v1alpha1.HostOff:
		return h.stayOff(d)
	case v1alpha1.HostPoweringOn:
		return h.comeBack(deadline)
	case v1alpha1.HostFailed:
		if _, reported := h.node.Annotations[v1alpha1.AnnotationHostFailed]; !reported {
			return h.powerOn("somebody repaired the host")
		}
	}
	return nil
}

// begin cordons and marks an empty node. The host's owner, and who watches the node's health, must
// agree.
func (h *hostOf) begin(policy *v1alpha1.EnergyPolicy) error {
	if err := h.check(h.ctx, policy, h.node); err != nil {
		return err
	}
	h.record = &record{Policy: policy.Name, By: *policy.Spec.HostPower}
	h.mark(h.node)
	return h.enter(v1alpha1.HostCordoned, power.ReasonEmpty, "the node is cordoned to power its host off")
}

// check returns what keeps a node's host from being powered off. Nil: nothing.
func (r *Reconciler) check(ctx context.Context, policy *v1alpha1.EnergyPolicy, node *corev1.Node) error {
	host, err := bmc.Find(ctx, r.Direct, policy.Spec.HostPower, node)
	if err != nil {
		return err
	}
	if err := host.Refuses(); err != nil {
		return err
	}
	return r.checkHealthChecks(ctx, node)
}

// enter writes that the host is in a state from now on, and reports it.
func (h *hostOf) enter(state v1alpha1.HostState, reason, message string) error {
	h.State, h.Since = state, metav1.NewTime(h.now)
	if err := h.write(); err != nil {
		return err
	}
	kind := corev1.EventTypeNormal
	if state == v1alpha1.HostFailed {
		kind = corev1.EventTypeWarning
	}
	h.report(kind, reason, message)
	return nil
}

func (h *hostOf) report(kind, reason, message string) {
	h.Recorder.Eventf(h.node, nil, kind, reason, "PowerHost", "EnergyPolicy %s: %s", h.Policy, message)
	ctrl.LoggerFrom(h.ctx).Info(message, "node", h.node.Name, "state", h.State, "reason", reason)
}

// write writes node and record, unless somebody changed the node meanwhile.
func (h *hostOf) write() error {
	annotate(h.node, v1alpha1.AnnotationHostPower, h.record)
	return h.patch()
}

func (h *hostOf) patch() error {
	patch := client.MergeFromWithOptions(h.was, client.MergeFromWithOptimisticLock{})
	if err := h.Direct.Patch(h.ctx, h.node, patch, client.FieldOwner(fieldOwner)); err != nil {
		if apierrors.IsForbidden(err) {
			return bmc.Refuse(v1alpha1.ReasonHostRights, "the manager may not cordon node %s: install the rights of config/host-power: %v", h.was.Name, err)
		}
		return err
	}
	h.was = h.node.DeepCopy()
	return nil
}

// isEmpty looks past all caches, and returns what keeps the node from being empty.
func (h *hostOf) isEmpty() (model.Hold, error) {
	now, err := h.readCluster(h.ctx, h.node.Name)
	if err != nil {
		return model.Hold{}, err
	}
	return now.contents(h.node).Keeps(), nil
}

// lastLook has the host shut down if the node is still empty once nothing new comes to it.
func (h *hostOf) lastLook(d power.Decision) error {
	if !d.On {
		kept, err := h.isEmpty()
		if err != nil {
			return err
		}
		if kept.Reason != "" {
			d = power.Decision{On: true, Hold: kept}
		}
	}
	if d.On {
		return h.revert(d.Reason, "the host stays on: "+d.Message)
	}
	if err := h.markedMachine(); err != nil {
		return errors.Join(err, h.revert(holdOf(err).Reason, "the host stays on"))
	}
	if h.now.Sub(h.Since.Time) < settles {
		return nil
	}
	if _, err := h.find(); err != nil {
		return errors.Join(err, h.revert(holdOf(err).Reason, "the host stays on"))
	}
	h.BootID = h.node.Status.NodeInfo.BootID
	if err := h.enter(v1alpha1.HostShuttingDown, power.ReasonEmpty, "the host of the empty node is shut down"); err != nil {
		return err
	}
	return h.askOff()
}

// markedMachine marks the node's Machine, and writes before that it is the manager's to unmark.
func (h *hostOf) markedMachine() error {
	if !h.Machine {
		lacks, err := h.lacksMark(h.ctx, h.node)
		if err != nil || !lacks {
			return err
		}
		h.Machine = true
		if err := h.write(); err != nil {
			return err
		}
	}
	return h.markMachine(h.ctx, h.node, marked)
}

// find asks for the host once a step: management controllers are slow.
func (h *hostOf) find() (host bmc.Host, err error) {
	if h.host == nil {
		h.host, err = bmc.Find(h.ctx, h.Direct, &h.By, h.node)
	}
	return h.host, err
}

// askOff asks the provider once to shut the system down, and once to cut its power.
func (h *hostOf) askOff() error {
	host, err := h.find()
	if err != nil {
		return err
	}
	force := h.now.Sub(h.Since.Time) >= shutsDown
	if err := host.PowerOff(h.ctx, force); err != nil {
		return err
	}
	h.Asked, h.Forced = true, force
	return h.write()
}

func (h *hostOf) shutDown(d power.Decision) error {
	if d.On {
		return h.powerOn(d.Message)
	}
	host, err := h.find()
	if err != nil {
		return err
	}
	took := h.now.Sub(h.Since.Time)
	switch {
	case !host.IsOn():
		return h.enter(v1alpha1.HostOff, power.ReasonEmpty, "the host is off")
	case took >= givesUp:
		return h.powerOn(fmt.Sprintf("the host did not power off within %v", givesUp))
	case h.Asked && (took < shutsDown || h.Forced):
		return nil
	}
	kept, err := h.isEmpty()
	if err != nil {
		return err
	}
	if kept.Reason != "" {
		return h.powerOn(kept.Message)
	}
	return h.askOff()
}

func (h *hostOf) stayOff(d power.Decision) error {
	if d.On {
		return h.powerOn(d.Message)
	}
	host, err := h.find()
	if err != nil {
		return err
	}
	if host.IsOn() {
		return h.powerOn("somebody powered the host on")
	}
	return nil
}

func (h *hostOf) powerOn(why string) error {
	if err := h.enter(v1alpha1.HostPoweringOn, power.ReasonNeeded, "the host is powered on: "+why); err != nil {
		return err
	}
	host, err := h.find()
	if err != nil {
		return err
	}
	return host.PowerOn(h.ctx)
}

// comeBack reverts what was done once the node is ready again, and reports a host that does not come
// back in time. The provider is asked each time: the host may have been shutting down before.
func (h *hostOf) comeBack(deadline time.Duration) error {
	host, err := h.find()
	if err == nil {
		err = host.PowerOn(h.ctx)
	}
	took := h.now.Sub(h.Since.Time)
	booted := h.node.Status.NodeInfo.BootID != h.BootID
	if err == nil && objects.IsNodeReady(h.node) && (booted || host.IsOn() && took >= sameBoot) {
		if booted {
			annotate(h.node, v1alpha1.AnnotationHostBoot, boot{At: metav1.NewTime(h.now), Seconds: int64(took.Seconds())})
		}
		return h.revert(power.ReasonNeeded, fmt.Sprintf("the host is back after %v", took.Round(time.Second)))
	}
	if took < deadline {
		return err
	}
	message := fmt.Sprintf("the host of node %s did not come back within %v: repair it, then run kubectl annotate node %s %s-", h.node.Name, deadline, h.node.Name, v1alpha1.AnnotationHostFailed)
	metav1.SetMetaDataAnnotation(&h.node.ObjectMeta, v1alpha1.AnnotationHostFailed, message)
	return errors.Join(err, h.enter(v1alpha1.HostFailed, v1alpha1.ReasonHostFailed, message))
}

// revert removes all marks. A cordon of somebody else stays.
func (h *hostOf) revert(reason, message string) error {
	if h.Machine {
		if err := h.markMachine(h.ctx, h.node, nil); err != nil {
			return err
		}
	}
	h.unmark(h.node)
	if err := h.patch(); err != nil {
		return err
	}
	h.State = v1alpha1.HostOn
	h.report(corev1.EventTypeNormal, reason, message)
	return nil
}
