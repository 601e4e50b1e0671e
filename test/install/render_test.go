package install

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
)

// mutates is what an API server serves that has MutatingAdmissionPolicies.
const mutates = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"

// values are some for all that people set.
const values = "test/install/testdata/values.yaml"

// TestChartInstallsTheManifests compares each object of the chart with that of config/. They
// differ in the Namespace, which Helm creates, in Helm's labels and in hook annotations.
func TestChartInstallsTheManifests(t *testing.T) {
	h := newHelm(t, "")
	got := objects(t, h.must(t, "template", release, chart, "--namespace", namespace, "--api-versions", mutates, "--set",
		"serviceMonitor.enabled=true,prometheusRule.enabled=true,grafana.enabled=true,openshift.enabled=true,offload.enabled=true,offload.image.tag=latest,offload.sharedMemory.enabled=true,policy.preset=observe"))
	want := map[string]*unstructured.Unstructured{}
	for _, folder := range []string{"config/default", "config/mutation", "config/prometheus", "config/grafana", "config/openshift", "config/offload", "config/openshift/shared-memory", "config/removal"} {
		maps.Copy(want, kustomized(t, folder))
	}
	delete(want, "Namespace/"+namespace)
	for _, all := range []map[string]*unstructured.Unstructured{want, got} {
		for _, o := range all {
			withoutHelm(o)
		}
	}
	policy := got["EnergyPolicy/observe"]
	if policy == nil || policy.GetAnnotations()["helm.sh/hook"] != "post-install" {
		t.Errorf("the preset is not created after the kinds: %v", policy)
	}
	delete(got, "EnergyPolicy/observe")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-kustomize +helm:\n%s", diff)
	}

	standard := objects(t, h.must(t, "template", release, chart, "--namespace", namespace))
	for id, o := range kustomized(t, "config/default") {
		if standard[id] == nil && o.GetKind() != "Namespace" {
			t.Errorf("default values do not install %s", id)
		}
	}
	// The account of config/restore needs what the agents' does.
	own, restore := want["SecurityContextConstraints/joulevirt-agent"], kustomized(t, "config/openshift/restore")["SecurityContextConstraints/joulevirt-restore"]
	if own == nil || restore == nil {
		t.Fatalf("constraints of the agents %v, of restore %v", own, restore)
	}
	own.SetName(restore.GetName())
	own.Object["users"] = []any{"system:serviceaccount:joulevirt-restore:default"}
	if diff := cmp.Diff(own, restore); diff != "" {
		t.Errorf("-agents +restore:\n%s", diff)
	}
	hosts := objects(t, h.must(t, "template", release, chart, "--namespace", namespace, "--set", "hostPower.metal3Namespace=metal3"))
	for id, o := range kustomized(t, "config/host-power") {
		if hosts[id] != nil {
			withoutHelm(hosts[id])
		}
		if got := hosts[id]; got == nil || standard[id] != nil || !cmp.Equal(o, got) {
			t.Errorf("%s is installed with default values, or with hostPower it is not as in config/host-power: %v", id, got)
		}
	}
	if role := hosts["Role/joulevirt-host-power"]; role == nil || role.GetNamespace() != "metal3" || !strings.Contains(fmt.Sprint(role.Object["rules"]), "baremetalhosts") || strings.Contains(fmt.Sprint(role.Object["rules"]), "secrets") {
		t.Errorf("rights in the namespace of BareMetalHosts: %v", role)
	}
	if standard["ClusterRole/joulevirt-manager-offload"] != nil || standard["PodTemplate/joulevirt-gateway"] != nil {
		t.Error("default values let the manager create pods")
	}
	offload := objects(t, h.must(t, "template", release, chart, "--namespace", namespace, "--set", "offload.enabled=true,openshift.enabled=true"))
	for id := range kustomized(t, "config/openshift/shared-memory") {
		if offload[id] != nil {
			t.Errorf("lever Offload alone installs %s", id)
		}
	}
	if standard["ServiceMonitor/joulevirt-agent"] != nil || standard["PrometheusRule/joulevirt"] != nil {
		t.Error("default values install monitoring")
	}
	if strings.Contains(h.must(t, "template", release, chart, "--set", "networkPolicy.enabled=false"), "kind: NetworkPolicy") {
		t.Error("networkPolicy.enabled=false installs NetworkPolicies")
	}
}

// TestChartMutates installs MutatingAdmissionPolicies in the version that the cluster has.
func TestChartMutates(t *testing.T) {
	h := newHelm(t, "")
	for version, folder := range map[string]string{"v1": "config/mutation", "v1beta1": "config/mutation-v1beta1", "": ""} {
		args := []string{"template", release, chart, "--namespace", namespace, "--kube-version", "1.33.0"}
		if version != "" {
			args = append(args, "--api-versions", "admissionregistration.k8s.io/"+version+"/MutatingAdmissionPolicy")
		}
		got := objects(t, h.must(t, args...))
		maps.DeleteFunc(got, func(_ string, o *unstructured.Unstructured) bool { return !strings.HasPrefix(o.GetKind(), "Mutating") })
		want := map[string]*unstructured.Unstructured{}
		if folder != "" {
			want = kustomized(t, folder)
		}
		for _, all := range []map[string]*unstructured.Unstructured{want, got} {
			for _, o := range all {
				withoutHelm(o)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("cluster with version %q, -kustomize +helm:\n%s", version, diff)
		}
	}
}

// TestValuesReachTheirPlaces sets what people set, each to something else than it is.
func TestValuesReachTheirPlaces(t *testing.T) {
	h := newHelm(t, "")
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	text := h.must(t, "template", release, chart, "--namespace", "elsewhere", "--values", values)
	got := objects(t, text)
	if strings.Contains(strings.ReplaceAll(text, "description:", ""), "serviceaccount:"+namespace) {
		t.Error("an expression still names the namespace of the manifests")
	}
	for _, place := range []struct {
		object string
		path   []string
		want   any
	}{
		{"Deployment/joulevirt-manager", []string{"spec", "replicas"}, int64(3)},
		{"Deployment/joulevirt-manager", []string{"metadata", "namespace"}, "elsewhere"},
		{"Deployment/joulevirt-manager", []string{"metadata", "labels", "team"}, "energy"},
		{"Deployment/joulevirt-manager", []string{"spec", "template", "metadata", "labels", "cost"}, "infra"},
		{"Deployment/joulevirt-manager", []string{"spec", "template", "spec", "priorityClassName"}, "system-cluster-critical"},
		{"Deployment/joulevirt-manager", []string{"spec", "template", "spec", "imagePullSecrets"}, []any{map[string]any{"name": "pull"}}},
		{"DaemonSet/joulevirt-agent", []string{"spec", "template", "spec", "imagePullSecrets"}, []any{map[string]any{"name": "pull"}}},
		{"DaemonSet/joulevirt-agent", []string{"spec", "template", "spec", "nodeSelector", "zone"}, "a"},
		{"DaemonSet/joulevirt-agent", []string{"spec", "template", "metadata", "annotations", "scan"}, "no"},
		{"CustomResourceDefinition/nodeplans.joulevirt.io", []string{"metadata", "annotations", "helm.sh/resource-policy"}, "keep"},
		{"Job/joulevirt-removal", []string{"spec", "template", "spec", "imagePullSecrets"}, []any{map[string]any{"name": "pull"}}},
		{"ServiceMonitor/joulevirt-agent", []string{"metadata", "labels", "release"}, "prometheus"},
		{"NetworkPolicy/joulevirt-manager", []string{"spec", "ingress"}, []any{map[string]any{
			"from":  []any{map[string]any{"ipBlock": map[string]any{"cidr": "192.0.2.0/24"}}},
			"ports": []any{map[string]any{"port": "metrics", "protocol": "TCP"}},
		}}},
	} {
		o := got[place.object]
		if o == nil {
			t.Errorf("there is no %s", place.object)
			continue
		}
		value, _, err := unstructured.NestedFieldNoCopy(o.Object, place.path...)
		if diff := cmp.Diff(place.want, value); err != nil || diff != "" {
			t.Errorf("%s %s: %v, -want +got:\n%s", place.object, strings.Join(place.path, "."), err, diff)
		}
	}
	for id, want := range map[string]map[string]any{
		"Deployment/joulevirt-manager": {"image": "registry.example/manager@" + digest, "args": []string{"--zap-log-level=debug", "--kube-api-qps=50"}},
		"DaemonSet/joulevirt-agent": {"image": "joulevirt/agent:v1", "args": []string{
			"--sample-interval=2s", "--stale-after=30m", "--per-vm-metrics=false",
		}},
		"Job/joulevirt-removal": {"image": "registry.example/manager@" + digest, "args": []string{"--keep-objects", "--timeout=2m"}},
	} {
		containers, _, _ := unstructured.NestedSlice(got[id].Object, "spec", "template", "spec", "containers")
		container, _ := containers[0].(map[string]any)
		if container["image"] != want["image"] {
			t.Errorf("%s has image %v, want %v", id, container["image"], want["image"])
		}
		args, _, _ := unstructured.NestedStringSlice(container, "args")
		wanted, _ := want["args"].([]string)
		for _, arg := range wanted {
			if !slices.Contains(args, arg) {
				t.Errorf("%s lacks argument %s: %v", id, arg, args)
			}
		}
	}
}

func TestBadValuesAreRefused(t *testing.T) {
	h := newHelm(t, "")
	for set, want := range map[string]string{
		"manager.replica=2":                                        "'replica' not allowed",
		"manager.replicas=two":                                     "/manager/replicas",
		"agent.image.digest=latest":                                "/agent/image/digest",
		"agent.sampleInterval=often":                               "/agent/sampleInterval",
		"policy.preset=balanced":                                   "'', 'observe'",
		"agent.extraArgs[0]=sample-interval=2s":                    "/agent/extraArgs/0",
		"serviceMonitor.scraper.name=operator":                     "set namespace and name",
		"networkPolicy.metricsFrom=any":                            "/networkPolicy/metricsFrom",
		"hostPower.metal3Namespace=a,hostPower.redfishNamespace=a": "must differ",
		"offload.sharedMemory.enabled=true":                        "needs offload.enabled",
	} {
		_, err := h.Run(t.Context(), "template", release, chart, "--set", set)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want a refusal with %s", set, err, want)
		}
	}
}

// withoutHelm removes labels and annotations that only Helm's objects have, and the label of
// config/default, which the chart gives all objects.
func withoutHelm(o *unstructured.Unstructured) {
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	for _, key := range []string{"helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/instance", "app.kubernetes.io/part-of"} {
		delete(labels, key)
	}
	if o.GetName() == "joulevirt-removal" {
		maps.DeleteFunc(annotations, func(key, _ string) bool { return strings.HasPrefix(key, "helm.sh/") })
	}
	// Empty maps are the same as none.
	if o.SetLabels(labels); len(labels) == 0 {
		o.SetLabels(nil)
	}
	if o.SetAnnotations(annotations); len(annotations) == 0 {
		o.SetAnnotations(nil)
	}
}

func kustomized(t *testing.T, folder string) map[string]*unstructured.Unstructured {
	t.Helper()
	paths, err := source().Ensure(t.Context(), binaries.Kubectl)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), paths[binaries.Kubectl], "kustomize", filepath.Join(root, folder)).Output()
	if err != nil {
		t.Fatalf("kubectl kustomize %s: %v", folder, err)
	}
	return objects(t, string(out))
}

func objects(t *testing.T, text string) map[string]*unstructured.Unstructured {
	t.Helper()
	all := map[string]*unstructured.Unstructured{}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(text)), 4096)
	for {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(o)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(o.Object) == 0 {
			continue
		}
		id := o.GetKind() + "/" + o.GetName()
		if all[id] != nil {
			t.Errorf("%s is there twice", id)
		}
		all[id] = o
	}
}
