package objects

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
)

// TestStripKeepsLaunchers: of a VM's pods those count that run it. KubeVirt calls pods that have
// ended active too.
func TestStripKeepsLaunchers(t *testing.T) {
	all := map[types.UID]string{"left": "a", "source": "b", "target": "c"}
	for name, tc := range map[string]struct {
		node      string
		migration *virtv1.VirtualMachineInstanceMigrationState
		want      map[types.UID]string
	}{
		"no node yet":  {"", nil, all},
		"no migration": {"b", nil, map[types.UID]string{"source": "b"}},
		"migrates": {
			"b", &virtv1.VirtualMachineInstanceMigrationState{SourceNode: "b", TargetNode: "c"},
			map[types.UID]string{"source": "b", "target": "c"},
		},
		"has migrated": {
			"c", &virtv1.VirtualMachineInstanceMigrationState{SourceNode: "b", TargetNode: "c", Completed: true},
			map[types.UID]string{"target": "c"},
		},
	} {
		vmi := &virtv1.VirtualMachineInstance{}
		vmi.Status.NodeName, vmi.Status.ActivePods, vmi.Status.MigrationState = tc.node, all, tc.migration
		stripped, err := Strip(vmi)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, stripped.(*virtv1.VirtualMachineInstance).Status.ActivePods); diff != "" {
			t.Errorf("%s: pods (-want +got):\n%s", name, diff)
		}
		if len(vmi.Status.ActivePods) != len(all) {
			t.Fatalf("%s: the object that was decoded is changed", name)
		}
	}
}

// TestStripKeepsLocalVolumes, without what is large in them.
func TestStripKeepsLocalVolumes(t *testing.T) {
	vmi := &virtv1.VirtualMachineInstance{}
	vmi.Spec.Volumes = []virtv1.Volume{
		{Name: "root", VolumeSource: virtv1.VolumeSource{ContainerDisk: &virtv1.ContainerDiskSource{Image: "registry/image"}}},
		{Name: "seed", VolumeSource: virtv1.VolumeSource{CloudInitNoCloud: &virtv1.CloudInitNoCloudSource{UserData: "text"}}},
	}
	want := []virtv1.Volume{{Name: "root", VolumeSource: virtv1.VolumeSource{EmptyDisk: &virtv1.EmptyDiskSource{}}}}
	stripped, err := Strip(vmi)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, stripped.(*virtv1.VirtualMachineInstance).Spec.Volumes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestStripScheduling: what the scheduler goes by stays, what is large goes.
func TestStripScheduling(t *testing.T) {
	requests := corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "a", UID: "u", Labels: map[string]string{"app": "web"}, Annotations: map[string]string{PreferNoEviction: "true"},
	}}
	pod.Spec = corev1.PodSpec{
		NodeName: "n", NodeSelector: map[string]string{"disk": "ssd"}, SchedulerName: "default-scheduler", HostNetwork: true,
		Affinity:                  &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}},
		Tolerations:               []corev1.Toleration{{Key: "gpu"}},
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{TopologyKey: "zone"}},
		Overhead:                  corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Mi")},
		ResourceClaims:            []corev1.PodResourceClaim{{Name: "gpu"}},
		Containers:                []corev1.Container{{Name: "c", Resources: requests, Ports: []corev1.ContainerPort{{HostPort: 1}}}},
		InitContainers:            []corev1.Container{{Name: "i", Resources: requests, RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}},
		Volumes:                   []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "x"}}}},
	}
	pod.Status.Phase = corev1.PodRunning
	want := pod.DeepCopy()
	pod.Annotations["large"], pod.Spec.Containers[0].Image, pod.Spec.ServiceAccountName = "text", "registry/image", "account"
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "LARGE"}}
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "scratch"})
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c"}}
	got, err := stripScheduling(pod)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, pod (-want +got):\n%s", err, diff)
	}
	claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
		VolumeName: "v", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
	}}
	got, err = stripScheduling(claim.DeepCopy())
	if diff := cmp.Diff(claim, got); err != nil || diff != "" {
		t.Errorf("%v, claim (-want +got):\n%s", err, diff)
	}
}
