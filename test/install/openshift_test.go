package install

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	extensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/internal/gomod"
)

// OpenShift's own definition of SecurityContextConstraints, of about version 4.15.
const (
	openshiftModule = "github.com/openshift/api@v0.0.0-20231129134630-a782d1c1541c"
	openshiftKind   = "security/v1/0000_03_security-openshift_01_scc.crd.yaml"
	constraintsName = "securitycontextconstraints.security.openshift.io"
)

// constraints is the part of the kind that the agents' object fills.
type constraints struct {
	Users                    []string            `json:"users"`
	AllowHostPID             bool                `json:"allowHostPID"`
	AllowHostIPC             bool                `json:"allowHostIPC"`
	AllowHostNetwork         bool                `json:"allowHostNetwork"`
	AllowHostPorts           bool                `json:"allowHostPorts"`
	AllowHostDirVolumePlugin bool                `json:"allowHostDirVolumePlugin"`
	AllowPrivilegedContainer bool                `json:"allowPrivilegedContainer"`
	AllowPrivilegeEscalation bool                `json:"allowPrivilegeEscalation"`
	ReadOnlyRootFilesystem   bool                `json:"readOnlyRootFilesystem"`
	RequiredDropCapabilities []corev1.Capability `json:"requiredDropCapabilities"`
	AllowedCapabilities      []corev1.Capability `json:"allowedCapabilities"`
	SeccompProfiles          []string            `json:"seccompProfiles"`
	Volumes                  []string            `json:"volumes"`
	RunAsUser                struct {
		Type string `json:"type"`
		UID  *int64 `json:"uid"`
	} `json:"runAsUser"`
}

// TestConstraintsAreWhatAgentsAsk derives from the DaemonSet what its constraints have to
// allow: less would keep the agents from running, more would be for nothing.
func TestConstraintsAreWhatAgentsAsk(t *testing.T) {
	all := kustomized(t, "config/openshift")
	var got constraints
	scc := all["SecurityContextConstraints/joulevirt-agent"]
	if scc == nil {
		t.Fatal("config/openshift has no constraints")
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(scc.Object, &got); err != nil {
		t.Fatal(err)
	}
	pod := podOf(t, all["DaemonSet/joulevirt-agent"])
	if len(pod.Containers) != 1 {
		t.Fatalf("an agent has %d containers, want 1", len(pod.Containers))
	}
	asks := pod.Containers[0].SecurityContext
	want := constraints{
		Users:        []string{"system:serviceaccount:" + namespace + ":" + pod.ServiceAccountName},
		AllowHostPID: pod.HostPID, AllowHostIPC: pod.HostIPC, AllowHostNetwork: pod.HostNetwork,
		AllowPrivilegedContainer: asks.Privileged != nil && *asks.Privileged,
		AllowPrivilegeEscalation: *asks.AllowPrivilegeEscalation,
		ReadOnlyRootFilesystem:   *asks.ReadOnlyRootFilesystem,
		RequiredDropCapabilities: asks.Capabilities.Drop,
		AllowedCapabilities:      asks.Capabilities.Add,
		Volumes:                  []string{"projected"}, // the token
	}
	want.RunAsUser.Type, want.RunAsUser.UID = "MustRunAs", asks.RunAsUser
	if pod.SecurityContext.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault {
		want.SeccompProfiles = []string{"runtime/default"}
	}
	for _, volume := range pod.Volumes {
		kind := "of another kind"
		if volume.HostPath != nil {
			kind, want.AllowHostDirVolumePlugin = "hostPath", true
		}
		if !slices.Contains(want.Volumes, kind) {
			want.Volumes = append(want.Volumes, kind)
		}
	}
	slices.Sort(want.Volumes)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-what agents ask +what is allowed:\n%s", diff)
	}
}

// TestOthersMeetRestricted holds the pods that have no constraints of their own to
// restricted-v2, beyond what the Pod Security level restricted asks: OpenShift chooses users
// and groups, and refuses those that a pod names.
func TestOthersMeetRestricted(t *testing.T) {
	h := newHelm(t, "")
	all := objects(t, h.must(t, "template", release, chart, "--namespace", namespace, "--set", "openshift.enabled=true"))
	for _, id := range []string{"Deployment/joulevirt-manager", "Job/joulevirt-removal"} {
		pod := podOf(t, all[id])
		if of := pod.SecurityContext; of.RunAsUser != nil || of.RunAsGroup != nil || of.FSGroup != nil || of.SupplementalGroups != nil || of.SELinuxOptions != nil {
			t.Errorf("%s names a user or group: %+v", id, of)
		}
		for _, c := range pod.Containers {
			of := c.SecurityContext
			if of.RunAsUser != nil || of.RunAsGroup != nil || len(of.Capabilities.Add) > 0 || *of.AllowPrivilegeEscalation || !slices.Contains(of.Capabilities.Drop, "ALL") {
				t.Errorf("%s, container %s: %+v", id, c.Name, of)
			}
		}
		if pod.HostPID || pod.HostNetwork || len(pod.Volumes) > 0 {
			t.Errorf("%s asks for the node, or for volumes", id)
		}
	}
}

// TestConstraintsAreTaken installs the chart where OpenShift's kind is, and has the API
// server check the manifest strictly.
func TestConstraintsAreTaken(t *testing.T) {
	w := newWorld(t)
	h := newHelm(t, w.Kubeconfig())
	dir, err := gomod.Dir(t.Context(), t.TempDir(), openshiftModule)
	w.check(err)
	w.check(w.ApplyManifests(t.Context(), filepath.Join(dir, openshiftKind)))
	w.eventually("OpenShift's kind is served", func(ctx context.Context) error {
		var crd extensionsv1.CustomResourceDefinition
		if err := w.Client().Get(ctx, client.ObjectKey{Name: constraintsName}, &crd); err != nil {
			return err
		}
		if !cluster.Established(&crd) {
			return fmt.Errorf("%s is not established", crd.Name)
		}
		return nil
	})
	_, err = w.RunKubectl(t.Context(), "apply", "--server-side", "--validate=strict", "--dry-run=server", "--filename", root+"/config/openshift/agent_scc.yaml")
	w.check(err)

	h.must(t, append(installPage(t, "install"), "--set", "openshift.enabled=true")...)
	scc := &unstructured.Unstructured{}
	scc.SetAPIVersion("security.openshift.io/v1")
	scc.SetKind("SecurityContextConstraints")
	w.check(w.Client().Get(t.Context(), client.ObjectKey{Name: "joulevirt-agent"}, scc))
	users, _, err := unstructured.NestedStringSlice(scc.Object, "users")
	if err != nil || len(users) != 1 || !strings.HasPrefix(users[0], "system:serviceaccount:"+namespace+":") {
		t.Errorf("users are %v (%v)", users, err)
	}
}

// podOf is the pod of a Deployment, DaemonSet or Job.
func podOf(t *testing.T, o *unstructured.Unstructured) corev1.PodSpec {
	t.Helper()
	if o == nil {
		t.Fatal("there is no such object")
	}
	spec, _, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
	if err != nil {
		t.Fatal(err)
	}
	var pod corev1.PodSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &pod); err != nil {
		t.Fatal(err)
	}
	return pod
}
