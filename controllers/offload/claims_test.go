package offload

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

func sharingVM(name, uid string) *virtv1.VirtualMachineInstance {
	vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "studio", Name: name, UID: types.UID(uid)}}
	vmi.Spec.Domain.Devices.Filesystems = []virtv1.Filesystem{{Name: "other"}, {Name: v1alpha1.ShareName}}
	source := virtv1.VolumeSource{PersistentVolumeClaim: &virtv1.PersistentVolumeClaimVolumeSource{}}
	source.PersistentVolumeClaim.ClaimName = "joulevirt-share-render"
	vmi.Spec.Volumes = []virtv1.Volume{{Name: "other"}, {Name: v1alpha1.ShareName, VolumeSource: source}}
	return vmi
}

func TestClaimOf(t *testing.T) {
	for _, test := range []struct {
		change func(*virtv1.VirtualMachineInstanceSpec)
		reason string
		words  []string
	}{
		{change: func(*virtv1.VirtualMachineInstanceSpec) {}},
		{change: func(s *virtv1.VirtualMachineInstanceSpec) { s.EvictionStrategy = ptr.To(virtv1.EvictionStrategyNone) }},
		{change: func(s *virtv1.VirtualMachineInstanceSpec) {
			s.EvictionStrategy = ptr.To(virtv1.EvictionStrategyLiveMigrateIfPossible)
		}},
		{
			change: func(s *virtv1.VirtualMachineInstanceSpec) {
				s.EvictionStrategy = ptr.To(virtv1.EvictionStrategyExternal)
			},
			reason: v1alpha1.ReasonShareBlocksDrain, words: []string{"evictionStrategy of VM render is External", "set None or LiveMigrateIfPossible"},
		},
		{
			change: func(s *virtv1.VirtualMachineInstanceSpec) { s.Domain.Devices.Filesystems = nil },
			reason: v1alpha1.ReasonShareMissing, words: []string{"domain.devices.filesystems of VM render lacks joulevirt-share", "virtiofs"},
		},
		{
			change: func(s *virtv1.VirtualMachineInstanceSpec) { s.Volumes = s.Volumes[:1] },
			reason: v1alpha1.ReasonShareMissing, words: []string{"volume joulevirt-share of VM render", `claimName ""`, "such as joulevirt-share-render"},
		},
		{
			change: func(s *virtv1.VirtualMachineInstanceSpec) { s.Volumes[1].PersistentVolumeClaim.ClaimName = "data" },
			reason: v1alpha1.ReasonShareMissing, words: []string{`claimName "data"`},
		},
	} {
		vmi := sharingVM("render", "1")
		test.change(&vmi.Spec)
		claim, refusal := claimOf(vmi)
		if test.reason == "" {
			if refusal != nil || claim != "joulevirt-share-render" {
				t.Errorf("claim %q, refusal %v", claim, refusal)
			}
			continue
		}
		if refusal == nil || refusal.Reason != test.reason {
			t.Errorf("%v, want %s", refusal, test.reason)
			continue
		}
		for _, word := range test.words {
			if !strings.Contains(refusal.Message, word) {
				t.Errorf("%q lacks %q", refusal.Message, word)
			}
		}
	}
}

func TestRefuseClaim(t *testing.T) {
	owner := &v1alpha1.HybridWorkload{Spec: v1alpha1.HybridWorkloadSpec{Memory: v1alpha1.GatewayMemory{Max: resource.MustParse("1Gi")}}}
	vmi := sharingVM("render", "2")
	claim := func(of *virtv1.VirtualMachineInstance, phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
		claim := newClaim(owner, of, "joulevirt-share-render")
		claim.Status.Phase = phase
		return claim
	}
	unowned := claim(vmi, corev1.ClaimBound)
	unowned.OwnerReferences = nil
	for _, test := range []struct {
		claim         *corev1.PersistentVolumeClaim
		reason, words string
	}{
		{claim(vmi, corev1.ClaimBound), "", ""},
		{nil, v1alpha1.ReasonSharePending, "is being made"},
		{claim(vmi, corev1.ClaimPending), v1alpha1.ReasonSharePending, "has no volume yet"},
		{claim(sharingVM("render", "1"), corev1.ClaimBound), v1alpha1.ReasonSharePending, "of the last run of VM render"},
		{claim(sharingVM("other", "3"), corev1.ClaimBound), v1alpha1.ReasonShareTaken, "is the share of VM other: let the template of VM render"},
		{&corev1.PersistentVolumeClaim{}, v1alpha1.ReasonShareTaken, "is not a share"},
		{unowned, v1alpha1.ReasonShareTaken, "is not a share"},
	} {
		refusal := refuseClaim(vmi, test.claim, "joulevirt-share-render")
		if test.reason == "" && refusal == nil {
			continue
		}
		if refusal == nil || refusal.Reason != test.reason || !strings.Contains(refusal.Message, test.words) {
			t.Errorf("%v, want %s, %q", refusal, test.reason, test.words)
		}
	}
}

func TestRefuseVirtiofs(t *testing.T) {
	launcher := func(limit string) *corev1.Pod {
		pod := podOf("virt-launcher-render", true, active())
		pod.Spec.Containers = []corev1.Container{{Name: "compute"}, {Name: "virtiofs-joulevirt-share"}}
		if limit != "" {
			pod.Spec.Containers[1].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(limit)}
		}
		return pod
	}
	share := resource.MustParse("256Mi")
	for _, limit := range []string{"", "384Mi", "1Gi"} {
		if problem := refuseVirtiofs(launcher(limit), share); problem != "" {
			t.Errorf("limit %s: %s", limit, problem)
		}
	}
	problem := refuseVirtiofs(launcher("80M"), share)
	for _, word := range []string{"container virtiofs-joulevirt-share of pod virt-launcher-render", "80M", "384Mi", "share of 256Mi", "spec.configuration.supportContainerResources"} {
		if !strings.Contains(problem, word) {
			t.Errorf("%q lacks %q", problem, word)
		}
	}
}

func TestLevelOf(t *testing.T) {
	for context, want := range map[string]string{"": "", "none": "", "system_u:system_r:container_t:s0:c1,c2": "s0:c1,c2", "system_u:object_r:container_file_t:s0": "s0"} {
		if got := levelOf(context); got != want {
			t.Errorf("%s: %q, want %q", context, got, want)
		}
	}
}
