// Package starter writes the objects that a new admin may begin with, from what the cluster has.
// It is a pure function of what was read.
package starter

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
)

// Parts are what is read of the cluster.
func Parts() []facts.Part {
	return []facts.Part{facts.Prometheuses, facts.Services, facts.DaemonSets, facts.Reports, facts.KubeVirt, facts.VMs, facts.Profiles}
}

const nameLabel = "app.kubernetes.io/name"

// server is a Prometheus server, by the port of its Service.
type server struct {
	namespace, name string
	port            int32
	// tls is true when the port asks for https.
	tls bool
}

// findPrometheus returns the Service that is most likely a Prometheus server's, and how many others
// there are.
func findPrometheus(f *facts.Facts) (best *server, others int) {
	operated := map[string]bool{}
	for i := range f.Prometheuses {
		operated[f.Prometheuses[i].Namespace] = true
	}
	rank := func(s *corev1.Service) int {
		switch {
		case s.Name == "prometheus-operated", operated[s.Namespace] && s.Labels[nameLabel] == "prometheus":
			return 0
		case s.Labels[nameLabel] == "prometheus" || s.Labels["app"] == "prometheus":
			return 1
		case slices.Contains([]string{"prometheus", "prometheus-server", "prometheus-k8s"}, s.Name):
			return 2
		}
		return -1
	}
	found := slices.DeleteFunc(slices.Clone(f.Services), func(s corev1.Service) bool { return rank(&s) < 0 || webPort(&s) == nil })
	slices.SortStableFunc(found, func(x, y corev1.Service) int {
		return cmp.Or(cmp.Compare(rank(&x), rank(&y)), cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	if len(found) == 0 {
		return nil, 0
	}
	s := &found[0]
	port := webPort(s)
	return &server{
		namespace: s.Namespace, name: s.Name, port: port.Port,
		tls: strings.Contains(port.Name, "https") || strings.HasPrefix(s.Namespace, "openshift-"),
	}, len(found) - 1
}

// webPort is the port that Prometheus answers queries on.
func webPort(s *corev1.Service) *corev1.ServicePort {
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if p.Port == 9090 || p.Name == "web" || p.Name == "http-web" || p.Name == "https" || len(s.Spec.Ports) == 1 {
			return p
		}
	}
	return nil
}

// exporter is a Kepler that exports the power of nodes.
type exporter struct {
	namespace string
	// job that the Prometheus Operator gives its series: its Service. Empty: it has none.
	job string
	// old is true of versions that have other counters.
	old bool
}

// findKepler returns the first Kepler by its DaemonSet, or else by its Service.
func findKepler(f *facts.Facts) *exporter {
	var found *exporter
	for i := range f.DaemonSets {
		if set := &f.DaemonSets[i]; isKepler(set.Name, set.Labels) {
			found = &exporter{namespace: set.Namespace, old: runsOldKepler(set)}
			break
		}
	}
	for i := range f.Services {
		s := &f.Services[i]
		if isKepler(s.Name, s.Labels) && (found == nil || found.namespace == s.Namespace) {
			if found == nil {
				found = &exporter{namespace: s.Namespace}
			}
			found.job = s.Name
			break
		}
	}
	return found
}

func isKepler(name string, labels map[string]string) bool {
	return labels[nameLabel] == "kepler" || strings.Contains(name, "kepler") && !strings.Contains(name, "operator")
}

// beforeTen matches tags of Kepler before 0.10, such as v0.9.0 and release-0.7.12.
var beforeTen = regexp.MustCompile(`kepler[^/]*:(v|release-)?0\.[0-9]([.-]|$)`)

func runsOldKepler(set *appsv1.DaemonSet) bool {
	return slices.ContainsFunc(set.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return beforeTen.MatchString(c.Image) })
}

// group is a Service whose endpoints are VMs.
type group struct {
	*corev1.Service
	vms int
	// serving is true when the Service selects by the label that the manager sets.
	serving bool
	// selector of the VMs: the Service's without that label.
	selector map[string]string
	// taken is the profile that governs some of the VMs already. Empty: none does.
	taken string
}

// findGroups returns the Services in front of two VMs or more, by namespace and name. Of
// those with the same VMs the first is taken.
func findGroups(f *facts.Facts) []group {
	var groups []group
	governed := map[string]string{}
	for i := range f.VMs {
		vm := &f.VMs[i]
		for j := range f.Profiles {
			p := &f.Profiles[j]
			selector, err := metav1.LabelSelectorAsSelector(&p.Spec.Selector)
			if err == nil && p.Namespace == vm.Namespace && selector.Matches(labels.Set(vm.Labels)) {
				governed[vm.Namespace+"/"+vm.Name] = "VMNetworkProfile " + p.Name
			}
		}
	}
	services := slices.Clone(f.Services)
	slices.SortFunc(services, func(x, y corev1.Service) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	for i := range services {
		s := &services[i]
		g := group{Service: s, selector: map[string]string{}}
		for key, value := range s.Spec.Selector {
			if key == v1alpha1.LabelServing {
				g.serving = true
				continue
			}
			g.selector[key] = value
		}
		if len(g.selector) == 0 || s.Spec.ClusterIP == corev1.ClusterIPNone {
			continue
		}
		var names []string
		for j := range f.VMs {
			vm := &f.VMs[j]
			if vm.Namespace != s.Namespace || !labels.SelectorFromSet(g.selector).Matches(labels.Set(vm.Labels)) {
				continue
			}
			name := vm.Namespace + "/" + vm.Name
			names, g.taken = append(names, name), cmp.Or(g.taken, governed[name])
		}
		if g.vms = len(names); g.vms < 2 {
			continue
		}
		for _, name := range names {
			governed[name] = "the profile of Service " + s.Name + " above"
		}
		groups = append(groups, g)
	}
	return groups
}

func (g *group) hasUDP() bool {
	return slices.ContainsFunc(g.Spec.Ports, func(p corev1.ServicePort) bool { return p.Protocol == corev1.ProtocolUDP })
}
