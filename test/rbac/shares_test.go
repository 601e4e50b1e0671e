package rbac

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster"
)

// shareUID is of a claim.
const shareUID = types.UID("01234567-89ab-cdef-0123-456789abcdef")

// shareClaim is one as the manager makes it.
func shareClaim() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: routed, Name: v1alpha1.SharePrefix + "web", Labels: map[string]string{v1alpha1.LabelShare: "true"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstance", Name: "web", UID: "1", Controller: ptr.To(true)}},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To(v1alpha1.ShareName),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}

// shareVolume is one as the manager makes it.
func shareVolume() *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.SharePrefix + string(shareUID), Labels: map[string]string{v1alpha1.LabelShare: "true"}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: v1alpha1.ShareRoot + "/" + string(shareUID) + "/files"}},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			ClaimRef:                      &corev1.ObjectReference{Namespace: routed, Name: v1alpha1.SharePrefix + "web", UID: shareUID},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete, StorageClassName: v1alpha1.ShareName,
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{nodeA}}},
			}}}},
		},
	}
}

// testShares shows which claims and volumes the manager and a removal may create and delete once
// config/shared-memory is applied, and that nobody else makes shares.
func testShares(t *testing.T, c *cluster.Cluster) {
	account, admin := joulevirtClient(t, c.AsServiceAccount(namespace, manager)), joulevirtClient(t, c.RESTConfig())
	wantForbidden(t, account.Create(t.Context(), shareClaim()), "persistentvolumeclaims")
	wantForbidden(t, account.Create(t.Context(), shareVolume()), "persistentvolumes")
	if err := c.ApplyManifests(t.Context(), "../../config/shared-memory"); err != nil {
		t.Fatal(err)
	}
	foreignClaim, foreignVolume := shareClaim(), shareVolume()
	foreignClaim.Name, foreignClaim.Spec.StorageClassName = "data", nil
	foreignVolume.Name, foreignVolume.Spec.StorageClassName, foreignVolume.Spec.Local.Path = "data", "", "/data"
	err := c.WaitFor(t.Context(), policyDelay, "admission policies refuse claims", func(ctx context.Context) error {
		if err := isForbidden(account.Create(ctx, foreignClaim.DeepCopy(), client.DryRunAll)); err != nil {
			return err
		}
		return isForbidden(admin.Create(ctx, shareClaim(), client.DryRunAll))
	})
	if err != nil {
		t.Fatal(err)
	}
	wantForbidden(t, admin.Create(t.Context(), shareClaim()), "Joulevirt's manager makes the claims")
	for _, o := range []client.Object{foreignClaim, foreignVolume} {
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		wantForbidden(t, account.Delete(t.Context(), o), "create and delete only claims and volumes of class", "data")
	}
	removal := joulevirtClient(t, c.AsServiceAccount(namespace, "joulevirt-removal"))
	wantForbidden(t, removal.Delete(t.Context(), foreignVolume), "create and delete only claims and volumes of class")
	testShareClaims(t, account)
	testShareVolumes(t, account)
	volume := shareVolume()
	for _, by := range []client.Client{account, removal} {
		if err := account.Create(t.Context(), shareVolume()); err != nil {
			t.Fatalf("a share: %v", err)
		}
		if err := by.Delete(t.Context(), volume); err != nil {
			t.Fatalf("delete a share: %v", err)
		}
		err := admin.Patch(t.Context(), volume, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
}

func testShareClaims(t *testing.T, account client.Client) {
	for i, change := range []func(*corev1.PersistentVolumeClaim){
		func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr.To("standard") },
		func(c *corev1.PersistentVolumeClaim) { c.Name = "data-0" },
		func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences = nil },
		func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences[0].Kind = "HybridWorkload" },
		func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "data" },
		func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "data"}
		},
	} {
		claim := shareClaim()
		change(claim)
		if err := account.Create(t.Context(), claim, client.DryRunAll); isForbidden(err) != nil {
			t.Errorf("claim: change %d: %v, want a refusal", i, err)
		}
	}
	claim := shareClaim()
	if err := account.Create(t.Context(), claim); err != nil {
		t.Fatalf("claim of a share: %v", err)
	}
	if err := account.Delete(t.Context(), claim); err != nil {
		t.Errorf("delete the claim of a share: %v", err)
	}
}

func testShareVolumes(t *testing.T, account client.Client) {
	for i, change := range []func(*corev1.PersistentVolume){
		func(v *corev1.PersistentVolume) { v.Spec.StorageClassName = "standard" },
		func(v *corev1.PersistentVolume) { v.Spec.Local.Path = "/etc" },
		func(v *corev1.PersistentVolume) {
			v.Spec.Local.Path = v1alpha1.ShareRoot + "/01234567-89ab-cdef-0123-000000000000/files"
		},
		func(v *corev1.PersistentVolume) {
			v.Spec.ClaimRef.UID, v.Name, v.Spec.Local.Path = "x", v1alpha1.SharePrefix+"x", v1alpha1.ShareRoot+"/x/files"
		},
		func(v *corev1.PersistentVolume) {
			v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		},
		func(v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil },
		func(v *corev1.PersistentVolume) {
			v.Spec.Local, v.Spec.HostPath = nil, &corev1.HostPathVolumeSource{Path: "/etc"}
		},
	} {
		volume := shareVolume()
		change(volume)
		if err := account.Create(t.Context(), volume, client.DryRunAll); isForbidden(err) != nil {
			t.Errorf("volume: change %d: %v, want a refusal", i, err)
		}
	}
}
