package gateway

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
)

// verdict is what the route's parents say of its newest generation.
type verdict struct {
	// waits says which parent has yet to look at it. Empty: none.
	waits string
	// refusal is not nil when no parent accepts the route, or one cannot use it.
	refusal error
}

// judge reads the parents' conditions.
func (v *view) judge() verdict {
	if v.route == nil {
		return verdict{waits: fmt.Sprintf("%s %s is not generated yet: no VM of the group can be reached", v.kind.Kind, v.group.Target.Name)}
	}
	var out verdict
	var refused error
	if len(v.spec.ParentRefs) == 0 {
		out.waits = fmt.Sprintf("%s %s has no parentRefs: no Gateway takes it", v.kind.Kind, v.route.GetName())
	}
	accepted := 0
	for _, parent := range v.spec.ParentRefs {
		seen := false
		for i := range v.parents {
			if !v.sameParent(&parent, &v.parents[i].ParentRef) || !v.current(v.parents[i].Conditions) {
				continue
			}
			seen = true
			bad := v.complaint(&v.parents[i])
			switch {
			case bad == nil:
				accepted++
			case bad.Type == string(gatewayv1.RouteConditionAccepted):
				refused = v.refuse(&parent, bad)
			default:
				accepted++
				out.refusal = v.refuse(&parent, bad)
			}
		}
		if !seen {
			out.waits = fmt.Sprintf("waits until Gateway %s looks at %s %s", v.parentName(&parent), v.kind.Kind, v.route.GetName())
		}
	}
	if accepted == 0 && out.waits == "" && refused != nil {
		out.refusal = refused
	}
	return out
}

func (v *view) refuse(parent *gatewayv1.ParentReference, condition *metav1.Condition) error {
	return routing.Refuse(v1alpha1.ReasonRouteNotAccepted, "Gateway %s does not take %s %s: %s is %s (%s): %s",
		v.parentName(parent), v.kind.Kind, v.route.GetName(), condition.Type, condition.Status, condition.Reason, condition.Message)
}

// complaint returns the condition by which a parent does not take all of the
// route. Nil: it takes it.
func (v *view) complaint(status *gatewayv1.RouteParentStatus) *metav1.Condition {
	for _, kind := range []gatewayv1.RouteConditionType{gatewayv1.RouteConditionAccepted, gatewayv1.RouteConditionResolvedRefs} {
		if c := meta.FindStatusCondition(status.Conditions, string(kind)); c != nil && c.Status == metav1.ConditionFalse {
			return c
		}
	}
	if c := meta.FindStatusCondition(status.Conditions, string(gatewayv1.RouteConditionPartiallyInvalid)); c != nil && c.Status == metav1.ConditionTrue {
		return c
	}
	return nil
}

// current tells whether a parent's conditions are of the route's generation.
func (v *view) current(conditions []metav1.Condition) bool {
	c := meta.FindStatusCondition(conditions, string(gatewayv1.RouteConditionAccepted))
	return c != nil && c.ObservedGeneration >= v.route.GetGeneration()
}

// sameParent tells whether two references name the same. What is absent has a
// default in kind, group and namespace.
func (v *view) sameParent(a, b *gatewayv1.ParentReference) bool {
	return v.parentName(a) == v.parentName(b) &&
		ptr.Deref(a.Kind, "Gateway") == ptr.Deref(b.Kind, "Gateway") &&
		ptr.Deref(a.SectionName, "") == ptr.Deref(b.SectionName, "") &&
		ptr.Deref(a.Port, 0) == ptr.Deref(b.Port, 0)
}

func (v *view) parentName(parent *gatewayv1.ParentReference) string {
	return parentIn(parent, v.route)
}

func parentIn(parent *gatewayv1.ParentReference, route *unstructured.Unstructured) string {
	return string(ptr.Deref(parent.Namespace, gatewayv1.Namespace(route.GetNamespace()))) + "/" + string(parent.Name)
}
