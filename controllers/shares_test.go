package controllers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	volumehelpers "k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// share has a VM's spec name a claim as its share.
func (s *scene) share(vmi *virtv1.VirtualMachineInstance, claim string, strategy virtv1.EvictionStrategy) {
	s.Helper()
	shareOf(vmi, claim, strategy)
	spec, err := json.Marshal(map[string]any{"spec": map[string]any{
		"evictionStrategy": strategy, "volumes": vmi.Spec.Volumes,
		"domain": map[string]any{"devices": map[string]any{"filesystems": vmi.Spec.Domain.Devices.Filesystems}},
	}})
	s.must(err)
	s.must(suite.client.Patch(s.Context(), vmi, client.RawPatch(types.MergePatchType, spec)))
}

func shareOf(vmi *virtv1.VirtualMachineInstance, claim string, strategy virtv1.EvictionStrategy) {
	vmi.Spec.EvictionStrategy = ptr.To(strategy)
	vmi.Spec.Domain.Devices.Filesystems = []virtv1.Filesystem{{Name: v1alpha1.ShareName, Virtiofs: &virtv1.FilesystemVirtiofs{}}}
	source := virtv1.VolumeSource{PersistentVolumeClaim: &virtv1.PersistentVolumeClaimVolumeSource{}}
	source.PersistentVolumeClaim.ClaimName = claim
	vmi.Spec.Volumes = []virtv1.Volume{{Name: v1alpha1.ShareName, VolumeSource: source}}
}

// sharedScene has VMs, of which only the first has a share as it ought to be.
type sharedScene struct {
	*offloadScene
	claim types.NamespacedName
}

func newSharedScene(t *testing.T) *sharedScene {
	s := &sharedScene{offloadScene: &offloadScene{scene: newScene(t, "shared", 2), address: "10.200.0.17"}}
	s.vmis = s.vms("web", 5, s.nodes[0])
	s.claim = types.NamespacedName{Namespace: s.name, Name: v1alpha1.SharePrefix + "web"}
	s.share(s.vmis[0], s.claim.Name, virtv1.EvictionStrategyNone)
	s.share(s.vmis[1], v1alpha1.SharePrefix+"drained", virtv1.EvictionStrategyLiveMigrate)
	s.share(s.vmis[2], v1alpha1.SharePrefix+"foreign", virtv1.EvictionStrategyNone)
	s.share(s.vmis[3], "data", virtv1.EvictionStrategyLiveMigrateIfPossible)
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	s.must(suite.client.Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: v1alpha1.SharePrefix + "foreign", Labels: map[string]string{v1alpha1.LabelShare: "true"}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	}))
	s.endpoints(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{v1alpha1.AnnotationAdopt: "true"}},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}},
	})
	s.hybrid = &v1alpha1.HybridWorkload{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "web"},
		Spec: v1alpha1.HybridWorkloadSpec{
			Selector:    metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			ServiceName: "web", Port: 80, Path: v1alpha1.PathSharedMemory,
			Memory: v1alpha1.GatewayMemory{Min: resource.MustParse("16Mi"), Max: resource.MustParse("256Mi")},
		},
	}
	s.must(suite.client.Create(t.Context(), s.hybrid))
	t.Cleanup(func() { // as other tests know the cluster
		class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ShareName}}
		if err := suite.client.Delete(context.WithoutCancel(t.Context()), class); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	return s
}

// gatewayReasons waits until the VMs have these reasons, and returns their messages.
func (s *sharedScene) gatewayReasons(want ...string) map[string]string {
	s.Helper()
	messages := map[string]string{}
	s.eventually(fmt.Sprint("gateways have reasons ", want), func(ctx context.Context) error {
		if err := suite.client.Get(ctx, client.ObjectKeyFromObject(s.hybrid), s.hybrid); err != nil {
			return err
		}
		var reasons []string
		for _, g := range s.hybrid.Status.Gateways {
			reasons, messages[g.Reason] = append(reasons, g.Reason), g.Message
		}
		if !slices.Equal(reasons, want) {
			return fmt.Errorf("they are %v", s.hybrid.Status.Gateways)
		}
		return nil
	})
	return messages
}

// claimOf waits for the claim of a VM's share that is not another one.
func (s *sharedScene) claimOf(vmi *virtv1.VirtualMachineInstance, not types.UID) *corev1.PersistentVolumeClaim {
	s.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	s.eventually("a claim of "+vmi.Name, func(ctx context.Context) error {
		err := suite.client.Get(ctx, s.claim, claim)
		if err == nil && (claim.UID == not || !metav1.IsControlledBy(claim, vmi)) {
			err = fmt.Errorf("it is %s, of %v", claim.UID, claim.OwnerReferences)
		}
		return err
	})
	return claim
}

// choose plays the scheduler, which chooses a node for a claim.
func (s *sharedScene) choose(claim *corev1.PersistentVolumeClaim, node string) {
	s.Helper()
	s.patch(claim, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, volumehelpers.AnnSelectedNode, node))
}

// volumeOf waits for the volume of a claim.
func (s *sharedScene) volumeOf(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	s.Helper()
	volume := &corev1.PersistentVolume{}
	s.eventually("a volume of "+claim.Name, func(ctx context.Context) error {
		return suite.client.Get(ctx, types.NamespacedName{Name: v1alpha1.SharePrefix + string(claim.UID)}, volume)
	})
	return volume
}

// bind plays the controller of volumes.
func (s *sharedScene) bind(claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) {
	s.Helper()
	s.must(suite.client.Get(s.Context(), client.ObjectKeyFromObject(claim), claim))
	s.patch(claim, fmt.Sprintf(`{"spec":{"volumeName":%q}}`, volume.Name))
	claim.Status.Phase = corev1.ClaimBound
	s.must(suite.client.Status().Update(s.Context(), claim))
}

// release plays what protects volumes and claims in use, once nobody uses them any more.
func (s *sharedScene) release(o client.Object) {
	s.Helper()
	s.eventually(fmt.Sprintf("%T %s is deleted", o, o.GetName()), func(ctx context.Context) error {
		err := suite.client.Get(ctx, client.ObjectKeyFromObject(o), o)
		if err == nil && o.GetDeletionTimestamp() == nil {
			err = errors.New("it is there")
		}
		return client.IgnoreNotFound(err)
	})
	err := suite.client.Patch(s.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	s.must(client.IgnoreNotFound(err))
}

// TestShares: once its parts are installed, a VM has a claim as soon as it starts, which gets a volume on the
// node that the scheduler chose, and a gateway that reads it. Claims and volumes of a VM that ended, or of a
// node that is gone, make room for others. Other claims stay as they are.
func TestShares(t *testing.T) {
	s := newSharedScene(t)
	s.ready(v1alpha1.ReasonShareNotInstalled, "config/shared-memory", "offload.sharedMemory.enabled")
	s.must(suite.cluster.ApplyManifests(t.Context(), "../config/shared-memory"))
	messages := s.gatewayReasons(v1alpha1.ReasonSharePending, v1alpha1.ReasonShareBlocksDrain, v1alpha1.ReasonShareTaken, v1alpha1.ReasonShareMissing, v1alpha1.ReasonShareMissing)
	for reason, word := range map[string]string{
		v1alpha1.ReasonShareBlocksDrain: "evictionStrategy of VM " + s.vmis[1].Name + " is LiveMigrate", v1alpha1.ReasonShareTaken: "joulevirt-share-foreign is not a share",
		v1alpha1.ReasonShareMissing: "domain.devices.filesystems of VM " + s.vmis[4].Name,
	} {
		if !strings.Contains(messages[reason], word) {
			t.Errorf("%s: %q lacks %q", reason, messages[reason], word)
		}
	}
	claim := s.claimOf(s.vmis[0], "")
	if size := claim.Spec.Resources.Requests[corev1.ResourceStorage]; size.String() != "256Mi" || *claim.Spec.StorageClassName != v1alpha1.ShareName || claim.Labels[v1alpha1.LabelShare] != "true" {
		t.Errorf("claim %+v", claim)
	}
	s.choose(claim, s.nodes[0])
	volume := s.volumeOf(claim)
	s.shapeOfVolume(volume, claim)
	s.bind(claim, volume)
	s.gatewayReasons(v1alpha1.ReasonNoPolicy, v1alpha1.ReasonShareBlocksDrain, v1alpha1.ReasonShareTaken, v1alpha1.ReasonShareMissing, v1alpha1.ReasonShareMissing)
	s.offloadPolicy()
	gateway := s.gateways(1)[0]
	s.shapeOfGateway(&gateway)
	s.become(&gateway, true)
	s.serves("gateway/"+s.vmis[0].Name, s.vmis[1].Name, s.vmis[2].Name, s.vmis[3].Name, s.vmis[4].Name)

	again := s.restartShared(claim, volume)
	s.lostNode(again)
	var foreign corev1.PersistentVolumeClaim
	s.must(suite.client.Get(t.Context(), types.NamespacedName{Namespace: s.name, Name: v1alpha1.SharePrefix + "foreign"}, &foreign))
	if err := suite.client.Get(t.Context(), types.NamespacedName{Namespace: s.name, Name: v1alpha1.SharePrefix + "drained"}, claim); !apierrors.IsNotFound(err) {
		t.Errorf("the VM that would hold up drains has a claim: %v", err)
	}
}

func (s *sharedScene) shapeOfVolume(volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) {
	s.Helper()
	node := volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0]
	if volume.Annotations[v1alpha1.AnnotationShareNode] != s.nodes[0] || !slices.Equal(node.Values, s.nodes[:1]) || volume.Labels[v1alpha1.LabelShare] != "true" ||
		volume.Spec.Local.Path != "/var/lib/joulevirt-share/"+string(claim.UID)+"/files" || volume.Spec.ClaimRef.UID != claim.UID ||
		volume.Spec.Capacity.Storage().String() != "256Mi" || volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		s.Errorf("volume %+v", volume)
	}
}

func (s *sharedScene) shapeOfGateway(pod *corev1.Pod) {
	s.Helper()
	if len(pod.Spec.Containers) != 2 || len(pod.Spec.Volumes) != 2 || pod.Spec.Volumes[1].PersistentVolumeClaim.ClaimName != s.claim.Name ||
		*pod.Spec.SecurityContext.RunAsUser != v1alpha1.ShareUser || *pod.Spec.SecurityContext.RunAsGroup != v1alpha1.ShareUser {
		s.Fatalf("gateway %+v", pod.Spec)
	}
	nginx, evict := &pod.Spec.Containers[0], &pod.Spec.Containers[1]
	if !slices.Contains(nginx.Args, "--share=/share") || slices.Contains(nginx.Args, "--memory-max=268435456") || !nginx.VolumeMounts[1].ReadOnly ||
		nginx.Resources.Limits.Memory().String() != "144Mi" {
		s.Errorf("container %+v", nginx)
	}
	if !slices.Equal(evict.Args, []string{"evict", "--share=/share", "--store=/var/lib/joulevirt", "--idle-eviction=1m0s"}) || !evict.VolumeMounts[0].ReadOnly ||
		evict.VolumeMounts[1].ReadOnly || evict.ReadinessProbe != nil || evict.Ports != nil || evict.Lifecycle != nil {
		s.Errorf("container %+v", evict)
	}
}

// restartShared starts the first VM again: as long as a pod uses the old claim, the VM waits, and then it has
// another. It returns the VM.
func (s *sharedScene) restartShared(claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) *virtv1.VirtualMachineInstance {
	s.Helper()
	old, pod := s.vmis[0], s.pod(s.vmis[0].Name)
	s.must(suite.client.Delete(s.Context(), old))
	s.eventually("the claim goes while the VM ends", func(ctx context.Context) error {
		if err := suite.client.Get(ctx, s.claim, claim); err != nil {
			return err
		}
		if claim.DeletionTimestamp == nil {
			return errors.New("it is there")
		}
		return nil
	})
	s.patch(old, `{"metadata":{"finalizers":null}}`)
	s.must(suite.client.Delete(s.Context(), pod, client.GracePeriodSeconds(0)))
	again := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: old.Name, Labels: map[string]string{"app": "web"}}}
	again.Spec = *old.Spec.DeepCopy()
	shareOf(again, s.claim.Name, virtv1.EvictionStrategyNone)
	s.must(suite.client.Create(s.Context(), again))
	s.gateways(0)
	messages := s.gatewayReasons(v1alpha1.ReasonSharePending, v1alpha1.ReasonShareBlocksDrain, v1alpha1.ReasonShareTaken, v1alpha1.ReasonShareMissing, v1alpha1.ReasonShareMissing)
	if want := "of the last run of VM " + old.Name; !strings.Contains(messages[v1alpha1.ReasonSharePending], want) {
		s.Errorf("%q lacks %q", messages[v1alpha1.ReasonSharePending], want)
	}
	former := claim.UID
	s.release(claim)
	s.claimOf(again, former)
	volume.Status.Phase = corev1.VolumeReleased
	s.must(suite.client.Status().Update(s.Context(), volume))
	s.release(volume)
	return again
}

// lostNode has the scheduler choose a node that ends before the VM starts there: the claim makes room for one
// without a node. A new manager does it, which finds all as another left it.
func (s *sharedScene) lostNode(vmi *virtv1.VirtualMachineInstance) {
	s.Helper()
	claim := s.claimOf(vmi, "")
	s.choose(claim, s.nodes[1])
	volume := s.volumeOf(claim)
	stopManager(s)
	s.must(suite.client.Delete(s.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.nodes[1]}}))
	startManagerAgain(s)
	former := claim.UID
	s.release(claim)
	claim = s.claimOf(vmi, former)
	if node := claim.Annotations[volumehelpers.AnnSelectedNode]; node != "" || claim.DeletionTimestamp != nil {
		s.Errorf("claim %+v", claim)
	}
	volume.Status.Phase = corev1.VolumeReleased
	s.must(suite.client.Status().Update(s.Context(), volume))
	s.release(volume)
}
