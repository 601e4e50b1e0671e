package handler

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
)

// Runtime runs the launcher pods of one real node.
type Runtime interface {
	// StartPod makes the pod's sandbox and launcher; it returns when the pod has an address.
	StartPod(ctx context.Context, pod *corev1.Pod) (Sandbox, error)
}

// Sandbox is one running launcher pod.
type Sandbox interface {
	// IP is the pod's address.
	IP() string
	// LauncherPID is the process at the top of the pod's launcher, as seen from the host.
	LauncherPID() int
	// StartDomain defines and starts the VM; it returns when QEMU runs.
	StartDomain(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance) error
	// QEMUPID is the VM's QEMU process as seen from the host, 0 before StartDomain.
	QEMUPID() int
	// Stop ends the VM, the launcher and all that StartPod made; idempotent.
	Stop(ctx context.Context) error
}
