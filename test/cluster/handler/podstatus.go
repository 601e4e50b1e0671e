package handler

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// setContainersReady says whether the containers of a running pod pass their
// readiness probes.
func setContainersReady(pod *corev1.Pod, ready bool, now metav1.Time) {
	for i := range pod.Status.ContainerStatuses {
		pod.Status.ContainerStatuses[i].Ready = ready
	}
	if ready {
		setPodCondition(pod, corev1.ContainersReady, corev1.ConditionTrue, "", now)
		return
	}
	setPodCondition(pod, corev1.ContainersReady, corev1.ConditionFalse, "ContainersNotReady", now)
}

// setReady derives the condition Ready from the pod's containers and readiness
// gates.
func setReady(pod *corev1.Pod, now metav1.Time) {
	if podCondition(pod, corev1.ContainersReady) != corev1.ConditionTrue {
		setPodCondition(pod, corev1.PodReady, corev1.ConditionFalse, "ContainersNotReady", now)
		return
	}
	for _, gate := range pod.Spec.ReadinessGates {
		if podCondition(pod, gate.ConditionType) != corev1.ConditionTrue {
			setPodCondition(pod, corev1.PodReady, corev1.ConditionFalse, "ReadinessGatesNotReady", now)
			return
		}
	}
	setPodCondition(pod, corev1.PodReady, corev1.ConditionTrue, "", now)
}

// terminate marks a pod and its containers as ended.
func terminate(pod *corev1.Pod, phase corev1.PodPhase, now metav1.Time) {
	ended := &corev1.ContainerStateTerminated{Reason: "Completed", FinishedAt: now}
	if phase == corev1.PodFailed {
		ended.Reason, ended.ExitCode = "Error", 1
	}
	pod.Status.Phase = phase
	for i := range pod.Status.ContainerStatuses {
		container := &pod.Status.ContainerStatuses[i]
		container.Ready = false
		container.State = corev1.ContainerState{Terminated: ended}
	}
	setPodCondition(pod, corev1.ContainersReady, corev1.ConditionFalse, "PodCompleted", now)
	setPodCondition(pod, corev1.PodReady, corev1.ConditionFalse, "PodCompleted", now)
}

func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == kind {
			return condition.Status
		}
	}
	return corev1.ConditionUnknown
}

// setPodCondition changes a condition only when its status or reason does.
func setPodCondition(pod *corev1.Pod, kind corev1.PodConditionType, status corev1.ConditionStatus, reason string, now metav1.Time) {
	wanted := corev1.PodCondition{Type: kind, Status: status, Reason: reason, LastTransitionTime: now}
	for i, condition := range pod.Status.Conditions {
		if condition.Type != kind {
			continue
		}
		if condition.Status != status || condition.Reason != reason {
			pod.Status.Conditions[i] = wanted
		}
		return
	}
	pod.Status.Conditions = append(pod.Status.Conditions, wanted)
}
