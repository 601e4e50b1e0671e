package gateway

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
)

func TestServiceNames(t *testing.T) {
	long := "a.very.long-name-of-a-virtual-machine.that.is.longer.than.a.label.may.be.in.kubernetes.example"
	seen := map[string]bool{}
	for _, kind := range []v1alpha1.GroupTargetKind{v1alpha1.GroupHTTPRoute, v1alpha1.GroupGRPCRoute} {
		for _, route := range []string{"web", "9.web", long, long + "2"} {
			group := &routing.Group{Target: v1alpha1.TrafficGroup{Kind: kind, Name: route}}
			for _, member := range []string{"a", "a.b", "a-b", long, long + "2"} {
				name := serviceName(group, member)
				if problems := validation.IsDNS1035Label(name); len(problems) > 0 || seen[name] {
					t.Errorf("Service name %q of %s %s: %v, seen before: %v", name, kind, route, problems, seen[name])
				}
				seen[name] = true
			}
		}
	}
}
