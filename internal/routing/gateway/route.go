package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
)

// annotationTemplate is a hash of the route without its backends: it
// shows that a part was removed from the template.
const annotationTemplate = "joulevirt.io/template"

// notTyped is in the API server's error for an object that does not match its
// schema, which has the code 500 and no reason.
const notTyped = "failed to create typed patch object"

// buildRoute returns the object to apply, with these weights of backends.
func (v *view) buildRoute(weights map[string]int64) (*unstructured.Unstructured, error) {
	refs := []any{}
	for _, name := range slices.Sorted(maps.Keys(weights)) {
		refs = append(refs, map[string]any{
			"name": name, "port": int64(ptr.Deref(v.group.Target.Port, 0)), "weight": weights[name],
		})
	}
	rule := map[string]any{}
	spec := map[string]any{}
	if err := v.addTemplate(spec, rule); err != nil {
		return nil, err
	}
	raw, err := json.Marshal([]any{spec, rule})
	if err != nil {
		return nil, fmt.Errorf("encode the template of %s: %w", v.routeName(), err)
	}
	object := v.newObject(v.kind.GroupVersion().String(), v.kind.Kind, v.group.Target.Name)
	object.SetAnnotations(map[string]string{annotationTemplate: fmt.Sprintf("%x", sha256.Sum256(raw))[:16]})
	object.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "joulevirt"})
	rule["backendRefs"] = refs
	spec["rules"] = []any{rule}
	object.Object["spec"] = spec
	return object, nil
}

// addTemplate adds the profile's template of the route.
func (v *view) addTemplate(spec, rule map[string]any) error {
	template := v.group.Target.Route
	if len(template.Hostnames) > 0 {
		names := []any{}
		for _, name := range template.Hostnames {
			names = append(names, name)
		}
		spec["hostnames"] = names
	}
	for _, list := range []struct {
		field string
		raws  []runtime.RawExtension
		into  map[string]any
	}{{"parentRefs", template.ParentRefs, spec}, {"matches", template.Matches, rule}, {"filters", template.Filters, rule}} {
		if len(list.raws) == 0 {
			continue
		}
		values := []any{}
		for i := range list.raws {
			var value any
			if err := utiljson.Unmarshal(list.raws[i].Raw, &value); err != nil {
				return routing.Refuse(v1alpha1.ReasonRouteInvalid, "group.route.%s[%d] is not valid JSON: %v", list.field, i, err)
			}
			values = append(values, value)
		}
		list.into[list.field] = values
	}
	return nil
}

// applyRoute writes the route unless it is as wanted already.
func (w *Writer) applyRoute(ctx context.Context, v *view, weights map[string]int64) (written bool, err error) {
	wanted, err := v.buildRoute(weights)
	if err != nil {
		return false, err
	}
	options := []client.ApplyOption{client.FieldOwner(routing.FieldOwner)}
	if v.route != nil {
		if reverted, _ := v.reverted(); !reverted && isSameRoute(v.route, wanted) {
			return false, nil
		}
		// The UID makes the API server refuse if the route was recreated meanwhile.
		wanted.SetUID(v.route.GetUID())
		options = append(options, client.ForceOwnership)
	}
	w.routes.Remove(v.routeKey())
	err = w.cached.Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted), options...)
	v.wrote = v.wrote || err == nil
	return true, v.applyError(err)
}

// applyError turns an error that the user can correct into a Refusal.
func (v *view) applyError(err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsConflict(err):
		return routing.Refuse(v1alpha1.ReasonForeignObject, "somebody else creates %s at this time: choose another group.name: %v", v.routeName(), err)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), strings.Contains(err.Error(), notTyped):
		return routing.Refuse(v1alpha1.ReasonRouteInvalid, "the API server refuses %s: correct group.route: %v", v.routeName(), err)
	}
	return fmt.Errorf("apply %s: %w", v.routeName(), err)
}

// isSameRoute compares what we own of a route.
func isSameRoute(have, want *unstructured.Unstructured) bool {
	annotations := have.GetAnnotations()
	for key, value := range want.GetAnnotations() {
		if annotations[key] != value {
			return false
		}
	}
	return contains(have.Object["spec"], want.Object["spec"])
}

// contains returns whether an object has all fields of what is wanted. It may have
// more: the API server sets defaults.
func contains(have, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		object, ok := have.(map[string]any)
		if !ok {
			return false
		}
		for key, value := range want {
			if !contains(object[key], value) {
				return false
			}
		}
		return true
	case []any:
		list, ok := have.([]any)
		return ok && slices.EqualFunc(list, want, contains)
	}
	return have == want
}

// reverted returns whether somebody else changed the fields that we own, and who.
func (v *view) reverted() (bool, string) {
	if v.route == nil {
		return false, ""
	}
	fields := []string{"f:rules", "f:parentRefs"}
	if len(v.group.Target.Route.Hostnames) > 0 && len(v.spec.Hostnames) > 0 {
		fields = append(fields, "f:hostnames")
	}
	for _, field := range fields {
		if !slices.Contains(routing.FieldManagers(v.route, "f:spec", field), routing.FieldOwner) {
			return true, routing.ForeignManager(v.route, "f:spec", field)
		}
	}
	return false, ""
}
