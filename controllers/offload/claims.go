package offload

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/watch"
	"github.com/joulevirt/joulevirt/internal/routing"
)

// vmShare is what a VM has of path SharedMemory.
type vmShare struct {
	// claim that the VM's template names, its size, and the SELinux level of the VM.
	claim string
	size  resource.Quantity
	level string
	// missing is a claim to be made. Nil: there is one, or there may be none.
	missing *corev1.PersistentVolumeClaim
	// refusal is why no gateway can read the share. Nil: it can.
	refusal *routing.Refusal
}

func isShared(owner *v1alpha1.HybridWorkload) bool {
	return owner.Spec.Path == v1alpha1.PathSharedMemory
}

// sharesInstalled returns whether what makes and mounts shares is installed, so that the manager may watch them.
func sharesInstalled(ctx context.Context, live client.Reader) (bool, error) {
	err := live.Get(ctx, types.NamespacedName{Name: v1alpha1.ShareName}, &storagev1.StorageClass{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get StorageClass %s: %w", v1alpha1.ShareName, err)
	}
	return true, nil
}

// observeShares finds out whether the owner's VMs may have shares, and begins to watch these.
func (r *Reconciler) observeShares(ctx context.Context, s *seen) error {
	if !isShared(s.owner) {
		return nil
	}
	var err error
	if s.shares, err = sharesInstalled(ctx, r.Live); err != nil || !s.shares {
		return err
	}
	watch.Send(ctx, r.Shares.wake, s.owner)
	if err := r.watchClaims(); err != nil {
		return fmt.Errorf("watch claims of shares: %w", err)
	}
	return nil
}

// share observes what a VM has of its share, if it may have one.
func (r *Reconciler) share(ctx context.Context, s *seen, vmi *virtv1.VirtualMachineInstance) (vmShare, error) {
	if !s.shares {
		return vmShare{}, nil
	}
	share := vmShare{level: levelOf(vmi.Status.SelinuxContext)}
	share.claim, share.refusal = claimOf(vmi)
	if share.claim == "" {
		return share, nil
	}
	claim, err := r.findClaim(ctx, types.NamespacedName{Namespace: vmi.Namespace, Name: share.claim})
	if err != nil {
		return share, err
	}
	share.refusal = refuseClaim(vmi, claim, share.claim)
	if claim != nil {
		share.size = claim.Spec.Resources.Requests[corev1.ResourceStorage]
	} else if vmi.DeletionTimestamp.IsZero() {
		share.missing = newClaim(s.owner, vmi, share.claim)
	}
	return share, nil
}

// findClaim returns a claim, or nil. The cache has only those of shares.
func (r *Reconciler) findClaim(ctx context.Context, key types.NamespacedName) (*corev1.PersistentVolumeClaim, error) {
	claim := &corev1.PersistentVolumeClaim{}
	err := getFresh(ctx, r.Shares.Cache, r.Live, key, claim)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get PersistentVolumeClaim %s: %w", key, err)
	}
	return claim, nil
}

// getFresh reads an object from a cache, and from the API server what the cache does not have, or not yet.
func getFresh(ctx context.Context, cached, live client.Reader, key types.NamespacedName, o client.Object) error {
	err := cached.Get(ctx, key, o)
	if apierrors.IsNotFound(err) {
		err = live.Get(ctx, key, o)
	}
	return err
}

// claimOf returns the claim of the share that a VM's template names, or why it may have none.
func claimOf(vmi *virtv1.VirtualMachineInstance) (string, *routing.Refusal) {
	refuse := func(reason, format string, args ...any) (string, *routing.Refusal) {
		return "", &routing.Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
	}
	spec := &vmi.Spec
	if !slices.ContainsFunc(spec.Domain.Devices.Filesystems, func(f virtv1.Filesystem) bool { return f.Name == v1alpha1.ShareName }) {
		return refuse(v1alpha1.ReasonShareMissing, "domain.devices.filesystems of VM %s lacks %s: add it to the VM's template, with virtiofs: {}", vmi.Name, v1alpha1.ShareName)
	}
	claim := ""
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; v.Name == v1alpha1.ShareName && v.PersistentVolumeClaim != nil {
			claim = v.PersistentVolumeClaim.ClaimName
		}
	}
	if !strings.HasPrefix(claim, v1alpha1.SharePrefix) {
		return refuse(v1alpha1.ReasonShareMissing, "volume %s of VM %s has claimName %q: name a persistentVolumeClaim that begins with %s, such as %[4]s%[2]s",
			v1alpha1.ShareName, vmi.Name, claim, v1alpha1.SharePrefix)
	}
	switch strategy := ptr.Deref(spec.EvictionStrategy, virtv1.EvictionStrategyNone); strategy {
	case virtv1.EvictionStrategyNone, virtv1.EvictionStrategyLiveMigrateIfPossible:
		return claim, nil
	default:
		return refuse(v1alpha1.ReasonShareBlocksDrain, "evictionStrategy of VM %s is %s, and with a share it cannot migrate, so that drains would wait for it: set None or LiveMigrateIfPossible",
			vmi.Name, strategy)
	}
}

// refuseClaim returns why a claim is no share of a VM yet. Nil: it is.
func refuseClaim(vmi *virtv1.VirtualMachineInstance, claim *corev1.PersistentVolumeClaim, name string) *routing.Refusal {
	refuse := func(reason, format string, args ...any) *routing.Refusal {
		return &routing.Refusal{Reason: reason, Message: fmt.Sprintf("PersistentVolumeClaim "+format, args...)}
	}
	if claim == nil {
		return refuse(v1alpha1.ReasonSharePending, "%s is being made", name)
	}
	owner := metav1.GetControllerOfNoCopy(claim)
	switch {
	case ptr.Deref(claim.Spec.StorageClassName, "") != v1alpha1.ShareName || owner == nil:
		return refuse(v1alpha1.ReasonShareTaken, "%s is not a share: let the template of VM %s name another claim", name, vmi.Name)
	case owner.Name != vmi.Name:
		return refuse(v1alpha1.ReasonShareTaken, "%s is the share of VM %s: let the template of VM %s name another claim", name, owner.Name, vmi.Name)
	case owner.UID != vmi.UID:
		return refuse(v1alpha1.ReasonSharePending, "%s is of the last run of VM %s, and goes with its pods: restart the VM if it stays", name, vmi.Name)
	case claim.Status.Phase != corev1.ClaimBound:
		return refuse(v1alpha1.ReasonSharePending, "%s has no volume yet: it gets one when the VM's pod is scheduled", name)
	}
	return nil
}

// newClaim returns the claim of a VM's share. It goes with the VM.
func newClaim(owner *v1alpha1.HybridWorkload, vmi *virtv1.VirtualMachineInstance, name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vmi.Namespace, Name: name, Labels: map[string]string{v1alpha1.LabelShare: "true"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: virtv1.GroupVersion.String(), Kind: virtv1.VirtualMachineInstanceGroupVersionKind.Kind, Name: vmi.Name, UID: vmi.UID, Controller: ptr.To(true),
			}},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To(v1alpha1.ShareName),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: owner.Spec.Memory.Max}},
		},
	}
}

// makeClaims makes the claims of VMs that start: whatever keeps gateways away, VMs wait for them.
func (r *Reconciler) makeClaims(ctx context.Context, s *seen) error {
	for i := range s.vms {
		share := &s.vms[i].share
		if share.missing == nil {
			continue
		}
		err := r.Client.Create(ctx, share.missing)
		switch {
		case apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
			share.refusal = &routing.Refusal{Reason: v1alpha1.ReasonSharePending, Message: err.Error()}
		case err != nil && !apierrors.IsAlreadyExists(err):
			return fmt.Errorf("create PersistentVolumeClaim %s/%s: %w", share.missing.Namespace, share.claim, err)
		}
	}
	return nil
}

// refuseVirtiofs returns why virtiofsd of a VM would be killed for what it writes. Empty: it would not.
func refuseVirtiofs(launcher *corev1.Pod, share resource.Quantity) string {
	for _, c := range slices.Concat(launcher.Spec.Containers, launcher.Spec.InitContainers) {
		limit := c.Resources.Limits.Memory()
		if needs := share.Value() + v1alpha1.ShareSpare; c.Name == "virtiofs-"+v1alpha1.ShareName && !limit.IsZero() && limit.Value() < needs {
			return fmt.Sprintf("container %s of pod %s may use %s of memory, and needs %s for a share of %s: raise limits.memory of type virtiofs "+
				"in spec.configuration.supportContainerResources of the KubeVirt object and restart the VM, or lower memory.max",
				c.Name, launcher.Name, limit, resource.NewQuantity(needs, resource.BinarySI), &share)
		}
	}
	return ""
}

// levelOf returns the level of an SELinux context, such as system_u:system_r:container_t:s0:c1,c2. Empty: it has none.
func levelOf(context string) string {
	const parts = 4
	split := strings.SplitN(context, ":", parts)
	if len(split) < parts {
		return ""
	}
	return split[parts-1]
}
