package gateway

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
)

// foldedView has one VM for each fold named, with equal weights. Endpoints are as
// the labels say.
func foldedView(folds ...int) *view {
	v := &view{
		group: &routing.Group{Target: v1alpha1.TrafficGroup{Kind: v1alpha1.GroupHTTPRoute, Name: "web"}},
		route: &unstructured.Unstructured{}, ready: map[string]map[types.UID]bool{},
	}
	v.folds = foldNumbers(v.group)
	weights := map[string]int32{}
	for i, fold := range folds {
		service := foldService(v.group, fold)
		uid := types.UID(fmt.Sprintf("pod-%d", i))
		v.members = append(v.members, member{name: fmt.Sprintf("vm-%d", i), ready: true, pods: []*corev1.Pod{
			{ObjectMeta: metav1.ObjectMeta{UID: uid, Labels: map[string]string{v1alpha1.LabelFold: service}}},
		}})
		if v.ready[service] == nil {
			v.ready[service] = map[types.UID]bool{}
		}
		v.ready[service][uid] = true
		weights[service]++
	}
	var rule routeRule
	for service, weight := range weights {
		ref := gatewayv1.BackendRef{Weight: ptr.To(weight)}
		ref.Name = gatewayv1.ObjectName(service)
		rule.BackendRefs = append(rule.BackendRefs, ref)
	}
	v.spec.Rules = []routeRule{rule}
	return v
}

// Two members leave a fold that has a weight, and the third of it is not ready:
// one has to stay as long as it has the weight, also while the other, which left,
// is still among its endpoints.
func TestMovesNeverEmptyAFold(t *testing.T) {
	v := foldedView(0, 0, 0, 1, 2)
	shares := map[string]float64{"vm-0": 1, "vm-1": 2, "vm-2": 3, "vm-3": 1, "vm-4": 2}
	v.members[2].ready = false
	delete(v.ready[foldService(v.group, 0)], "pod-2")
	left := v.moves(shares, true)
	if len(left) != 1 {
		t.Fatalf("%v move at once, want one of two", left)
	}
	for i := range v.members {
		if to := left[v.members[i].name]; to != "" {
			v.members[i].pods[0].Labels[v1alpha1.LabelFold] = to
		}
	}
	if again := v.moves(shares, true); len(again) != 0 {
		t.Errorf("%v move while the endpoints do not follow yet: nobody is left in the fold", again)
	}
}
