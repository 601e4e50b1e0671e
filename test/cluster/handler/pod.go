package handler

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// imageDigest stands in the image IDs of all containers: KubeVirt starts a
// migration's target from the digest of the source's container disks.
const imageDigest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// onRealNode passes the launcher pods that we run.
func (h *Handler) onRealNode() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(object client.Object) bool {
		pod, ok := object.(*corev1.Pod)
		return ok && pod.Labels[kubevirtv1.AppLabel] == "virt-launcher" && h.sandboxes.real(pod.Spec.NodeName)
	})
}

// reconcilePod does a kubelet's work for a launcher pod.
func (h *Handler) reconcilePod(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var pod corev1.Pod
	if err := h.asNode.Get(ctx, request.NamespacedName, &pod); err != nil {
		return reconcile.Result{}, err
	}
	switch {
	case pod.DeletionTimestamp != nil:
		return reconcile.Result{}, h.removePod(ctx, &pod)
	case pod.Status.Phase == corev1.PodPending:
		return reconcile.Result{}, h.startPod(ctx, &pod)
	case pod.Status.Phase == corev1.PodRunning:
		return reconcile.Result{}, h.reportReady(ctx, &pod)
	}
	return reconcile.Result{}, nil
}

// removePod ends a deleted pod and lets it go.
func (h *Handler) removePod(ctx context.Context, pod *corev1.Pod) error {
	if err := h.sandboxes.stop(ctx, pod.UID); err != nil {
		return fmt.Errorf("stop pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	err := h.asNode.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	if err := client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("remove pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	h.wakeOwner(pod)
	return nil
}

// startPod makes the pod's sandbox and reports it. A sandbox that cannot be
// made fails the pod, as a kubelet's would after its retries: tests want to see
// the reason at once.
func (h *Handler) startPod(ctx context.Context, pod *corev1.Pod) error {
	l := h.sandboxes.pod(pod.UID)
	before := pod.DeepCopy()
	if l == nil {
		var err error
		if l, err = h.sandboxes.start(ctx, pod); err != nil {
			if ctx.Err() != nil {
				return err
			}
			h.log.Error(err, "start a launcher pod", "pod", client.ObjectKeyFromObject(pod))
			pod.Status.Reason, pod.Status.Message = "CreatePodSandboxFailed", err.Error()
			terminate(pod, corev1.PodFailed, metav1.Now())
			return h.patchPodStatus(ctx, pod, before)
		}
	}
	MarkRunning(pod, l.sandbox.IP(), h.hostIP(ctx, pod.Spec.NodeName), metav1.Now())
	if err := h.patchPodStatus(ctx, pod, before); err != nil {
		return err
	}
	h.wakeOwner(pod)
	return nil
}

// reportReady sets Ready as a kubelet does: containers ready and all readiness
// gates open (virt-controller opens KubeVirt's).
func (h *Handler) reportReady(ctx context.Context, pod *corev1.Pod) error {
	before := pod.DeepCopy()
	owner := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Annotations[kubevirtv1.DomainAnnotation]}
	setContainersReady(pod, !h.faults.vm(owner).NotReady, metav1.Now())
	setReady(pod, metav1.Now())
	return h.patchPodStatus(ctx, pod, before)
}

func (h *Handler) patchPodStatus(ctx context.Context, pod, before *corev1.Pod) error {
	patch := client.StrategicMergeFrom(before)
	if data, err := patch.Data(pod); err == nil && string(data) == "{}" {
		return nil
	}
	if err := h.asNode.Status().Patch(ctx, pod, patch); err != nil {
		return fmt.Errorf("report the status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

func (h *Handler) hostIP(ctx context.Context, name string) string {
	var node corev1.Node
	if err := h.asNode.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		return loopback // the node was deleted; its pods follow
	}
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			return address.Address
		}
	}
	return loopback
}

func (h *Handler) wakeOwner(pod *corev1.Pod) {
	if owner := metav1.GetControllerOf(pod); owner != nil {
		h.wakeVMI(types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name})
	}
}

// MarkRunning makes a pod's status that of a pod that runs on a node, with all
// containers ready.
func MarkRunning(pod *corev1.Pod, ip, hostIP string, now metav1.Time) {
	status := func(container corev1.Container) corev1.ContainerStatus {
		return corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, ImageID: container.Image + "@" + imageDigest,
			Ready: true, Started: ptr.To(true),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		}
	}
	s := &pod.Status
	s.Phase, s.StartTime = corev1.PodRunning, &now
	s.PodIP, s.PodIPs = ip, []corev1.PodIP{{IP: ip}}
	s.HostIP, s.HostIPs = hostIP, []corev1.HostIP{{IP: hostIP}}
	s.ContainerStatuses, s.InitContainerStatuses = nil, nil
	for _, container := range pod.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, status(container))
	}
	for _, container := range pod.Spec.InitContainers {
		init := status(container)
		if ptr.Deref(container.RestartPolicy, "") != corev1.ContainerRestartPolicyAlways {
			init.Started = ptr.To(false)
			init.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				Reason: "Completed", StartedAt: now, FinishedAt: now,
			}}
		}
		s.InitContainerStatuses = append(s.InitContainerStatuses, init)
	}
	setPodCondition(pod, corev1.PodInitialized, corev1.ConditionTrue, "", now)
	setPodCondition(pod, corev1.ContainersReady, corev1.ConditionTrue, "", now)
	setReady(pod, now)
}
