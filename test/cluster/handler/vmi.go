package handler

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// errNoLauncher says that a launcher is not there, or not there yet.
var errNoLauncher = errors.New("no launcher runs")

// reconcileVMI does the next step of a VMI.
func (h *Handler) reconcileVMI(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var vmi kubevirtv1.VirtualMachineInstance
	if err := h.asNode.Get(ctx, request.NamespacedName, &vmi); err != nil {
		return reconcile.Result{}, err
	}
	now := time.Now()
	next := decide(&vmi, h.faults.vm(request.NamespacedName))
	if next.write == nil {
		next = h.decideCrashed(&vmi)
	}
	if next.write == nil {
		return reconcile.Result{RequeueAfter: h.relist(&vmi)}, nil
	}
	if left := h.faults.remaining(vmi.UID, next, now); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	pods, err := h.launcherPods(ctx, &vmi)
	if err != nil {
		return reconcile.Result{}, err
	}
	if next.startOn != "" {
		err := h.startDomain(ctx, &vmi, next.startOn)
		if errors.Is(err, errNoLauncher) {
			return reconcile.Result{}, nil // its start wakes the VMI
		}
		if err != nil {
			h.log.Error(err, "start a VM", "vmi", request.NamespacedName)
			next = end(&vmi, kubevirtv1.Failed, err.Error())
		}
	}
	if next.endOn != "" {
		if err := h.endPods(ctx, pods, next.endOn, next.endAs); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{}, h.writeVMI(ctx, &vmi, next, pods, metav1.NewTime(now))
}

// relistInterval is how often a running VM is looked at without a cause, as a
// kubelet does.
const relistInterval = 2 * time.Second

// relist is the time until a VM of a real node is looked at again; 0: only when
// something tells of it.
func (h *Handler) relist(vmi *kubevirtv1.VirtualMachineInstance) time.Duration {
	if vmi.Status.Phase != kubevirtv1.Running || !h.sandboxes.real(vmi.Status.NodeName) {
		return 0
	}
	return relistInterval
}

// decideCrashed ends a VMI whose VM on a real node went by itself.
func (h *Handler) decideCrashed(vmi *kubevirtv1.VirtualMachineInstance) step {
	node := vmi.Status.NodeName
	if vmi.Status.Phase != kubevirtv1.Running || !h.sandboxes.real(node) {
		return step{}
	}
	if pod := h.sandboxes.of(vmi.UID, node); pod != nil && !pod.crashed() {
		return step{}
	}
	return end(vmi, kubevirtv1.Failed, "the VM's QEMU or launcher ended by itself")
}

func (h *Handler) writeVMI(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance, next step, pods []corev1.Pod, now metav1.Time) error {
	changed := vmi.DeepCopy()
	next.write(changed, now)
	if changed.Status.Phase == kubevirtv1.Running {
		onNode := func(pod corev1.Pod) bool { return pod.Spec.NodeName == changed.Status.NodeName }
		if i := slices.IndexFunc(pods, onNode); i >= 0 {
			setInterfaces(changed, pods[i].Status.PodIP)
		}
	}
	if reflect.DeepEqual(vmi, changed) {
		return nil
	}
	if err := h.asHandler.Update(ctx, changed); err != nil {
		return fmt.Errorf("write VMI %s/%s: %w", vmi.Namespace, vmi.Name, err)
	}
	return nil
}

// startDomain starts the VM when node is real; on a simulated one nothing has
// to be done.
func (h *Handler) startDomain(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance, node string) error {
	if !h.sandboxes.real(node) {
		return nil
	}
	pod := h.sandboxes.of(vmi.UID, node)
	if pod == nil {
		return errNoLauncher
	}
	key := client.ObjectKeyFromObject(vmi)
	if err := pod.startDomain(ctx, vmi.DeepCopy(), func() { h.wakeVMI(key) }); err != nil {
		return fmt.Errorf("start the VM of %s on node %s: %w", key, node, err)
	}
	return nil
}

// endPods stops a VMI's launcher pods on a node and reports them as ended.
func (h *Handler) endPods(ctx context.Context, pods []corev1.Pod, node string, phase corev1.PodPhase) error {
	for i := range pods {
		pod := &pods[i]
		if pod.Spec.NodeName != node || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		if err := h.sandboxes.stop(ctx, pod.UID); err != nil {
			return fmt.Errorf("stop pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		before := pod.DeepCopy()
		terminate(pod, phase, metav1.Now())
		err := h.asNode.Status().Patch(ctx, pod, client.MergeFrom(before))
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("report the end of pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	return nil
}
