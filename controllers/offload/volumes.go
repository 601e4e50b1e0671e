package offload

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	volumehelpers "k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// Shares makes a volume for each share's claim, on the node that the scheduler chose, and removes claims
// and volumes of VMs that ended. So each start of a VM has an empty share.
type Shares struct {
	Client client.Client
	Live   client.Reader
	// Cache of shares' claims and volumes, see SharesCacheOptions.
	Cache cache.Cache

	wake    chan event.GenericEvent
	watches func() error
}

// SharesCacheOptions keep claims and volumes of shares alone.
func SharesCacheOptions() cache.Options {
	ours := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{v1alpha1.LabelShare: "true"})}
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject:         map[client.Object]cache.ByObject{&corev1.PersistentVolumeClaim{}: ours, &corev1.PersistentVolume{}: ours},
	}
}

// Setup adds the reconciler, whose one request is for all shares. It watches from the time on at which it
// finds its rights, at its start or for a HybridWorkload.
func (r *Shares) Setup(mgr ctrl.Manager) error {
	r.wake = make(chan event.GenericEvent)
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} })
	built, err := ctrl.NewControllerManagedBy(mgr).
		Named("shares").
		WatchesRawSource(source.Channel(r.wake, all)).
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			queue.Add(reconcile.Request{}) // of earlier managers' shares
			return nil
		})).
		Build(r)
	if err != nil {
		return err
	}
	r.watches = sync.OnceValue(func() error {
		gone := predicate.Funcs{CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: func(event.UpdateEvent) bool { return false }}
		ended := predicate.Funcs{CreateFunc: gone.CreateFunc, UpdateFunc: func(e event.UpdateEvent) bool {
			vmi, ok := e.ObjectNew.(*virtv1.VirtualMachineInstance)
			return ok && len(vmi.Spec.Volumes) > 0 && hasEnded(vmi)
		}}
		return errors.Join(
			built.Watch(source.Kind(r.Cache, client.Object(&corev1.PersistentVolumeClaim{}), all)),
			built.Watch(source.Kind(r.Cache, client.Object(&corev1.PersistentVolume{}), all)),
			built.Watch(source.Kind(mgr.GetCache(), client.Object(&corev1.Node{}), all, predicate.Predicate(gone))),
			built.Watch(source.Kind(mgr.GetCache(), client.Object(&virtv1.VirtualMachineInstance{}), all, predicate.Predicate(ended))))
	})
	return nil
}

// Reconcile brings the volumes and claims of all shares one step further.
func (r *Shares) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	if installed, err := sharesInstalled(ctx, r.Live); err != nil || !installed {
		return ctrl.Result{}, err
	}
	if err := r.watches(); err != nil {
		return ctrl.Result{}, fmt.Errorf("watch shares: %w", err)
	}
	var claims corev1.PersistentVolumeClaimList
	var volumes corev1.PersistentVolumeList
	if err := errors.Join(r.Cache.List(ctx, &claims, client.UnsafeDisableDeepCopy), r.Cache.List(ctx, &volumes, client.UnsafeDisableDeepCopy)); err != nil {
		return ctrl.Result{}, fmt.Errorf("list claims and volumes of shares: %w", err)
	}
	var failed []error
	made := map[string]bool{}
	for i := range volumes.Items {
		volume := &volumes.Items[i]
		made[volume.Name] = true
		if volume.Spec.StorageClassName == v1alpha1.ShareName && volume.Status.Phase == corev1.VolumeReleased && volume.DeletionTimestamp.IsZero() {
			failed = append(failed, r.remove(ctx, volume))
		}
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		if ptr.Deref(claim.Spec.StorageClassName, "") == v1alpha1.ShareName && claim.DeletionTimestamp.IsZero() {
			failed = append(failed, r.serve(ctx, claim, made[volumeName(claim)]))
		}
	}
	return ctrl.Result{}, errors.Join(failed...)
}

// serve makes the volume of a claim, or removes the claim when it can serve its VM no more: when the VM ended,
// and when the node is gone, so that the VM's pod can be scheduled to another with another claim. The
// garbage collector would remove it too late, when the VM has started again.
func (r *Shares) serve(ctx context.Context, claim *corev1.PersistentVolumeClaim, made bool) error {
	over, err := r.isOver(ctx, claim)
	if err != nil {
		return err
	}
	if over {
		return r.remove(ctx, claim)
	}
	name := claim.Annotations[volumehelpers.AnnSelectedNode]
	if name == "" {
		return nil
	}
	node := &corev1.Node{}
	err = getFresh(ctx, r.Client, r.Live, types.NamespacedName{Name: name}, node)
	switch {
	case apierrors.IsNotFound(err):
		return r.remove(ctx, claim)
	case err != nil:
		return fmt.Errorf("get Node %s: %w", name, err)
	case made || claim.Spec.VolumeName != "":
		return nil
	}
	if err := r.Client.Create(ctx, newVolume(claim, node)); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create PersistentVolume %s: %w", volumeName(claim), err)
	}
	return nil
}

// isOver returns whether the VM of a claim has ended. It asks the API server: the cache may be older than
// the claim.
func (r *Shares) isOver(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
	owner := metav1.GetControllerOfNoCopy(claim)
	if owner == nil {
		return true, nil
	}
	for _, reader := range []client.Reader{r.Client, r.Live} {
		vmi := &virtv1.VirtualMachineInstance{}
		err := reader.Get(ctx, types.NamespacedName{Namespace: claim.Namespace, Name: owner.Name}, vmi)
		if err == nil && vmi.UID == owner.UID && !hasEnded(vmi) {
			return false, nil
		}
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("get VirtualMachineInstance %s/%s: %w", claim.Namespace, owner.Name, err)
		}
	}
	return true, nil
}

func hasEnded(vmi *virtv1.VirtualMachineInstance) bool {
	return vmi.IsFinal() || !vmi.DeletionTimestamp.IsZero()
}

func (r *Shares) remove(ctx context.Context, o client.Object) error {
	if err := r.Client.Delete(ctx, o, client.Preconditions{UID: ptr.To(o.GetUID())}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %T %s: %w", o, client.ObjectKeyFromObject(o), err)
	}
	return nil
}

func volumeName(claim *corev1.PersistentVolumeClaim) string {
	return v1alpha1.SharePrefix + string(claim.UID)
}

// newVolume returns the volume of a claim on a node, which DaemonSet joulevirt-share mounts there.
func newVolume(claim *corev1.PersistentVolumeClaim, node *corev1.Node) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: volumeName(claim), Labels: map[string]string{v1alpha1.LabelShare: "true"},
			Annotations: map[string]string{v1alpha1.AnnotationShareNode: node.Name, volumehelpers.AnnDynamicallyProvisioned: v1alpha1.ShareProvisioner},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path.Join(v1alpha1.ShareRoot, string(claim.UID), v1alpha1.ShareFiles)}},
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete, StorageClassName: v1alpha1.ShareName,
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node.Labels[corev1.LabelHostname]}}},
			}}}},
		},
	}
}
