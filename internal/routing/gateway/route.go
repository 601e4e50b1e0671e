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

// annotationTemplate is a digest of what a generated route says beside its
// backends: a part that the template has no more is seen by it.
const annotationTemplate = "joulevirt.io/template"

// notTyped is how the API server calls an object that its schema does not know.
// It says so with the code 500, and without a reason.
const notTyped = "failed to create typed patch object"

// wantedRoute returns what is to be applied, with these weights of backends.
func (v *view) wantedRoute(weights map[string]int64) (*unstructured.Unstructured, error) {
	refs := []any{}
	for _, name := range slices.Sorted(maps.Keys(weights)) {
		refs = append(refs, map[string]any{
			"name": name, "port": int64(ptr.Deref(v.group.Target.Port, 0)), "weight": weights[name],
		})
	}
	rule := map[string]any{}
	spec := map[string]any{}
	object := v.object(v.kind.GroupVersion().String(), v.kind.Kind, v.group.Target.Name)
	if v.generated() {
		if err := v.addTemplate(spec, rule); err != nil {
			return nil, err
		}
		digest, err := digestOf(spec, rule)
		if err != nil {
			return nil, err
		}
		object.SetAnnotations(map[string]string{annotationTemplate: digest})
		object.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "joulevirt"})
	} else {
		object.SetOwnerReferences(nil)
		object.SetAnnotations(map[string]string{v1alpha1.AnnotationProfile: v.group.Profile.Name})
	}
	rule["backendRefs"] = refs
	spec["rules"] = []any{rule}
	object.Object["spec"] = spec
	return object, nil
}

// addTemplate adds what the profile says of the route.
func (v *view) addTemplate(spec, rule map[string]any) error {
	template := v.group.Target.Route
	parents := []any{}
	for _, p := range template.ParentRefs {
		parent := map[string]any{"name": p.Name}
		if p.Namespace != nil {
			parent["namespace"] = *p.Namespace
		}
		if p.SectionName != nil {
			parent["sectionName"] = *p.SectionName
		}
		if p.Port != nil {
			parent["port"] = int64(*p.Port)
		}
		parents = append(parents, parent)
	}
	spec["parentRefs"] = parents
	if len(template.Hostnames) > 0 {
		names := []any{}
		for _, name := range template.Hostnames {
			names = append(names, name)
		}
		spec["hostnames"] = names
	}
	for field, raws := range map[string][]runtime.RawExtension{"matches": template.Matches, "filters": template.Filters} {
		if len(raws) == 0 {
			continue
		}
		list := []any{}
		for i := range raws {
			var value any
			if err := utiljson.Unmarshal(raws[i].Raw, &value); err != nil {
				return routing.Refuse(v1alpha1.ReasonRouteInvalid, "group.route.%s[%d] cannot be read: %v", field, i, err)
			}
			list = append(list, value)
		}
		rule[field] = list
	}
	return nil
}

func digestOf(values ...any) (string, error) {
	raw, err := json.Marshal(values)
	if err != nil {
		return "", fmt.Errorf("encode the route's template: %w", err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(raw))[:16], nil
}

// applyRoute writes the route unless it is so already.
func (w *Writer) applyRoute(ctx context.Context, v *view, weights map[string]int64) (written bool, err error) {
	wanted, err := v.wantedRoute(weights)
	if err != nil {
		return false, err
	}
	options := []client.ApplyOption{client.FieldOwner(routing.FieldOwner)}
	if v.route != nil {
		if reverted, _ := v.routeReverted(); !reverted && sameRoute(v.route, wanted) {
			return false, nil
		}
		// Not another of that name, which was made meanwhile.
		wanted.SetUID(v.route.GetUID())
		if v.generated() {
			options = append(options, client.ForceOwnership)
		}
	}
	err = w.cached.Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted), options...)
	v.wrote = v.wrote || err == nil
	return true, v.applyError(err)
}

// applyError says whose fault an error is.
func (v *view) applyError(err error) error {
	name := fmt.Sprintf("%s %s/%s", v.kind.Kind, v.group.Profile.Namespace, v.group.Target.Name)
	switch {
	case err == nil:
		return nil
	case apierrors.IsConflict(err) && !v.generated():
		return routing.Refuse(v1alpha1.ReasonForeignRules, "%s got rules of somebody else, which are not overwritten: %v", name, err)
	case apierrors.IsConflict(err):
		return routing.Refuse(v1alpha1.ReasonForeignObject, "%s is made by somebody else at this time: choose another group.name: %v", name, err)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), strings.Contains(err.Error(), notTyped):
		return routing.Refuse(v1alpha1.ReasonRouteInvalid, "the API server refuses %s: correct group.route: %v", name, err)
	}
	return fmt.Errorf("apply %s: %w", name, err)
}

// sameRoute compares what is ours of a route.
func sameRoute(have, want *unstructured.Unstructured) bool {
	annotations := have.GetAnnotations()
	for key, value := range want.GetAnnotations() {
		if annotations[key] != value {
			return false
		}
	}
	return contains(have.Object["spec"], want.Object["spec"])
}

// contains tells whether an object has all of what is wanted. The API server's
// defaults may come on top.
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
