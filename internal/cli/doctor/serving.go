package doctor

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/show"
	"github.com/joulevirt/joulevirt/internal/routing/pods"
)

// serving checks that Services of groups select by the label that the manager sets, and that their
// VMs keep it when they migrate and when they start again.
func serving(in Input) []Check {
	var silent, losing, relying []string
	for i := range in.Profiles {
		p := &in.Profiles[i]
		group := p.Spec.Group
		if group == nil || group.Kind != v1alpha1.GroupService {
			continue
		}
		at := slices.IndexFunc(in.Services, func(s corev1.Service) bool { return s.Namespace == p.Namespace && s.Name == group.Name })
		selector, err := metav1.LabelSelectorAsSelector(&p.Spec.Selector)
		if at < 0 || err != nil { // its status says so
			continue
		}
		service := &in.Services[at]
		if service.Spec.Selector[v1alpha1.LabelServing] == "" {
			if service.Annotations[v1alpha1.AnnotationAdopt] != "true" {
				silent = append(silent, p.Namespace+"/"+group.Name)
			}
			continue
		}
		for j := range in.VMs {
			vm := &in.VMs[j]
			switch {
			case vm.Namespace != p.Namespace || !selector.Matches(labels.Set(vm.Labels)):
			case vm.Labels[v1alpha1.LabelServing] == "":
				losing = append(losing, vm.Namespace+"/"+vm.Name)
			case pods.IsLabelOurs(vm) && !in.mutates():
				relying = append(relying, vm.Namespace+"/"+vm.Name)
			}
		}
	}
	label := v1alpha1.LabelServing + ": " + v1alpha1.ServingActive
	var checks []Check
	for _, c := range []struct {
		objects []string
		check   Check
	}{
		{silent, Check{
			Name: "Services select by label", Finding: Note, Message: "without " + label + " in the selector: ",
			Costs: "their traffic is not steered", Fix: "kubectl annotate service NAME " + v1alpha1.AnnotationAdopt + "=true (Kubernetes 1.36), or add the line to spec.selector: docs/guides/traffic-share.md",
		}},
		{losing, Check{
			Name: "VMs keep the label", Finding: Problem, Message: "without label " + v1alpha1.LabelServing + ": ",
			Costs: "their Service loses them when they migrate", Fix: "kubectl label vmi NAME " + v1alpha1.LabelServing + "=" + v1alpha1.ServingActive + ", or have a policy permit TrafficShare: the manager adds it",
		}},
		{relying, Check{
			Name: "VMs start with the label", Finding: Note, Message: "have label " + v1alpha1.LabelServing + " from the manager alone: ",
			Costs: "one that starts while no manager runs does not serve", Fix: "add " + label + " to spec.template.metadata.labels of the VM; it needs no restart",
		}},
	} {
		if len(c.objects) > 0 {
			c.check.Area = areaPolicies
			c.check.Message += show.Some(c.objects)
			checks = append(checks, c.check)
		}
	}
	return checks
}

// mutatingMinor is the oldest Kubernetes 1.x with MutatingAdmissionPolicies of version v1.
const mutatingMinor = 36

// mutates returns whether the API server can add labels to launcher pods by itself.
func (in Input) mutates() bool {
	if in.Server == nil {
		return true // another check says that it is not known
	}
	minor, err := strconv.Atoi(strings.TrimRight(in.Server.Minor, "+"))
	return err == nil && minor >= mutatingMinor
}
