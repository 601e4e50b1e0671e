package gateway

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
)

func TestKindOfTakesTheVersionThatIsServed(t *testing.T) {
	group := schema.GroupVersion{Group: "gateway.networking.k8s.io", Version: "v1"}
	alpha := schema.GroupVersion{Group: group.Group, Version: "v1alpha2"}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{group, alpha})
	mapper.Add(group.WithKind("HTTPRoute"), meta.RESTScopeNamespace)
	mapper.Add(alpha.WithKind("TCPRoute"), meta.RESTScopeNamespace)
	for kind, want := range map[v1alpha1.GroupTargetKind]string{
		v1alpha1.GroupHTTPRoute: "v1", v1alpha1.GroupTCPRoute: "v1alpha2", v1alpha1.GroupGRPCRoute: "",
	} {
		got, err := kindOf(mapper, &routing.Group{Target: v1alpha1.TrafficGroup{Kind: kind}})
		var refusal *routing.Refusal
		if errors.As(err, &refusal) != (want == "") || want == "" && refusal.Reason != v1alpha1.ReasonKindNotServed {
			t.Errorf("%s: error %v", kind, err)
		}
		if got.Version != want {
			t.Errorf("%s: version %q, want %q", kind, got.Version, want)
		}
	}
}
