package starter

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
)

func service(namespace, name string, labels, selector map[string]string, ports ...corev1.ServicePort) corev1.Service {
	return corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec:       corev1.ServiceSpec{Selector: selector, ClusterIP: "10.0.0.1", Ports: ports},
	}
}

func port(name string, number int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Port: number, Protocol: corev1.ProtocolTCP}
}

func labelled(name string) map[string]string { return map[string]string{nameLabel: name} }

func kepler(image string) appsv1.DaemonSet {
	set := appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "power", Name: "kepler"}}
	set.Spec.Template.Spec.Containers = []corev1.Container{{Image: image}}
	return set
}

func vm(namespace, name string, labels map[string]string) metav1.PartialObjectMetadata {
	return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
}

func report(source v1alpha1.PowerSource) v1alpha1.NodeReport {
	return v1alpha1.NodeReport{Status: v1alpha1.NodeReportStatus{Power: v1alpha1.Power{Source: source}}}
}

// scene is a cluster with a Prometheus, a Kepler, and a Service in front of three VMs.
func scene() *facts.Facts {
	web := map[string]string{"app": "web"}
	return &facts.Facts{
		Services: []corev1.Service{
			service("monitoring", "prometheus-operated", nil, labelled("prometheus"), port("web", 9090), port("grpc", 10901)),
			service("power", "kepler", labelled("kepler"), labelled("kepler"), port("http", 28282)),
			service("shop", "web", nil, web, port("http", 80)),
		},
		DaemonSets: []appsv1.DaemonSet{kepler("quay.io/sustainable_computing_io/kepler:v0.11.2")},
		KubeVirt:   []virtv1.KubeVirt{{Status: virtv1.KubeVirtStatus{ObservedKubeVirtVersion: "v1.7.0"}}},
		VMs:        []metav1.PartialObjectMetadata{vm("shop", "a", web), vm("shop", "b", web), vm("shop", "c", web), vm("other", "d", web)},
	}
}

func TestWrite(t *testing.T) {
	for name, tc := range map[string]struct {
		change       func(*facts.Facts)
		want, absent []string
	}{
		"all is there": {
			func(f *facts.Facts) {
				f.Reports = []v1alpha1.NodeReport{report(v1alpha1.PowerRAPL), report(v1alpha1.PowerModel)}
			},
			[]string{
				"url: http://prometheus-operated.monitoring.svc:9090", `namespace: "power"`, `job: "kepler"`, "1 of 2 reporting nodes",
				"KubeVirt is v1.7.0", "4 now run", "Service web has 3 VMs", `"app": "web"`, "minActive: 2", "allowModelled: false", "until the",
			},
			[]string{"secret:"},
		},
		"before the installation": {nil, []string{"not before", "allowModelled: false"}, []string{"reporting nodes"}},
		"no meter anywhere": {
			func(f *facts.Facts) {
				f.DaemonSets, f.Services = nil, nil
				f.Reports = []v1alpha1.NodeReport{report(v1alpha1.PowerModel)}
			},
			[]string{"Neither Prometheus nor Kepler", "0 of 1 reporting", "No node has a meter", "allowModelled: true", "No VMNetworkProfile"},
			[]string{"type: Prometheus"},
		},
		"no Prometheus": {
			func(f *facts.Facts) { f.Services = f.Services[1:] }, []string{"Kepler runs in namespace power", "no Service of a Prometheus"}, []string{"type: Prometheus"},
		},
		"no Kepler": {
			func(f *facts.Facts) { f.DaemonSets, f.Services = nil, f.Services[:1] }, []string{"Kepler was not found"}, []string{"type: Prometheus"},
		},
		"a Service alone shows Kepler": {func(f *facts.Facts) { f.DaemonSets = nil }, []string{`job: "kepler"`}, nil},
		"an old Kepler": {
			func(f *facts.Facts) { f.DaemonSets = []appsv1.DaemonSet{kepler("quay.io/kepler:release-0.7.12")} },
			[]string{"older than 0.10", "kepler-0.9.yaml"}, []string{"type: Prometheus"},
		},
		"OpenShift": {
			func(f *facts.Facts) {
				f.Services[0] = service("openshift-monitoring", "prometheus-k8s", labelled("prometheus"), nil, port("web", 9091))
			},
			[]string{"url: https://prometheus-k8s.openshift-monitoring.svc:9091", "secret: prometheus-reader"}, nil,
		},
		"two servers": {
			func(f *facts.Facts) {
				f.Services = append(f.Services, service("a", "prometheus-server", labelled("prometheus"), nil, port("http", 80)))
			},
			[]string{"1 other Services", "prometheus-operated"}, nil,
		},
		"the operator's own": {
			func(f *facts.Facts) {
				f.Prometheuses = []metav1.PartialObjectMetadata{vm("x", "k8s", nil)}
				f.Services[0] = service("a", "prometheus-server", labelled("prometheus"), nil, port("http", 80))
				f.Services = append(f.Services, service("x", "main", labelled("prometheus"), nil, port("http-web", 9999)))
			},
			[]string{"url: http://main.x.svc:9999"}, nil,
		},
		"KubeVirt is missing": {func(f *facts.Facts) { f.KubeVirt = nil }, []string{"KubeVirt was not found"}, nil},
		"a UDP port": {
			func(f *facts.Facts) { f.Services[2].Spec.Ports[0].Protocol = corev1.ProtocolUDP },
			[]string{"a UDP port", "allowUDP"}, []string{"kind: VMNetworkProfile"},
		},
		"the label is there": {
			func(f *facts.Facts) { f.Services[2].Spec.Selector[v1alpha1.LabelServing] = v1alpha1.ServingActive },
			[]string{"already", `"app": "web"`}, []string{`"joulevirt.io/serving"`},
		},
		"two VMs": {
			func(f *facts.Facts) { f.VMs = f.VMs[:2] }, []string{"With 2 VMs both stay active"}, nil,
		},
		"one VM": {func(f *facts.Facts) { f.VMs = f.VMs[:1] }, []string{"No VMNetworkProfile"}, nil},
		"headless": {
			func(f *facts.Facts) { f.Services[2].Spec.ClusterIP = corev1.ClusterIPNone }, []string{"No VMNetworkProfile"}, nil,
		},
		"governed already": {
			func(f *facts.Facts) {
				profile := v1alpha1.VMNetworkProfile{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "old"}}
				profile.Spec.Selector.MatchLabels = map[string]string{"app": "web"}
				f.Profiles = []v1alpha1.VMNetworkProfile{profile}
			},
			[]string{"belong to VMNetworkProfile old"}, []string{"kind: VMNetworkProfile"},
		},
		"two Services of the same VMs": {
			func(f *facts.Facts) {
				f.Services = append(f.Services, service("shop", "web-2", nil, map[string]string{"app": "web"}, port("http", 80)))
			},
			[]string{"belong to the profile of Service web above"}, []string{`name: "web-2"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := scene()
			if tc.change != nil {
				tc.change(f)
			}
			text := Write(f)
			for _, want := range tc.want {
				if !strings.Contains(strings.ToLower(text), strings.ToLower(want)) {
					t.Errorf("it does not say %q", want)
				}
			}
			for _, absent := range tc.absent {
				if strings.Contains(text, absent) {
					t.Errorf("it says %q", absent)
				}
			}
			for document := range strings.SplitSeq(text, "\n---\n") {
				if err := yaml.UnmarshalStrict([]byte(document), &map[string]any{}); err != nil {
					t.Errorf("no YAML: %v", err)
				}
			}
			if t.Failed() {
				t.Log(text)
			}
		})
	}
}
