package gateway

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
)

// kindOf returns the version of a group's kind that the cluster prefers: what we
// read and write of it is the same in all of them.
func kindOf(mapper meta.RESTMapper, group *routing.Group) (schema.GroupVersionKind, error) {
	kind := schema.GroupKind{Group: gatewayv1.GroupName, Kind: string(group.Target.Kind)}
	mapping, err := mapper.RESTMapping(kind)
	if meta.IsNoMatchError(err) {
		return schema.GroupVersionKind{}, routing.Refuse(v1alpha1.ReasonKindNotServed,
			"the cluster does not have the kind %s: install the Gateway API's CustomResourceDefinitions, or use another group.kind", kind)
	}
	if err != nil {
		return schema.GroupVersionKind{}, fmt.Errorf("find the version of %s: %w", kind, err)
	}
	return mapping.GroupVersionKind, nil
}
