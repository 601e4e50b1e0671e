package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
)

// selectors returns the labels of each Service that the group shall have, by its
// name. A member without a pod keeps the Service that it has.
func (v *view) selectors(folded bool) map[string]map[string]string {
	out := map[string]map[string]string{}
	if folded {
		for name := range v.folds {
			if v.foldInUse(name) {
				out[name] = map[string]string{virtv1.AppLabel: "virt-launcher", v1alpha1.LabelFold: name}
			}
		}
		return out
	}
	for i := range v.members {
		m := &v.members[i]
		name := memberService(v.group, m.name)
		if labels := v.identity(m); labels != nil {
			out[name] = labels
		} else if have := v.services[name]; have != nil {
			out[name] = have.Spec.Selector
		}
	}
	return out
}

func (v *view) foldInUse(name string) bool {
	for i := range v.members {
		if v.foldOf(&v.members[i]) == v.folds[name] {
			return true
		}
	}
	return v.backends()[name] > 0
}

// identity returns labels that all pods of a member carry, and no pod of another
// VM. KubeVirt before 1.7 has no label for that: vm.kubevirt.io/name is the VM's
// host name, which VMs may share, and the VM's UID changes when it restarts.
func (v *view) identity(m *member) map[string]string {
	for _, key := range []string{virtv1.VirtualMachineInstanceIDLabel, virtv1.DeprecatedVirtualMachineNameLabel, virtv1.CreatedByLabel} {
		if value := commonLabel(m.pods, key); value != "" && !v.carriedByOthers(m, key, value) {
			return map[string]string{virtv1.AppLabel: "virt-launcher", key: value}
		}
	}
	return nil
}

func commonLabel(all []*corev1.Pod, key string) string {
	value := ""
	for _, pod := range all {
		switch pod.Labels[key] {
		case "":
			return ""
		case value:
		default:
			if value != "" {
				return ""
			}
			value = pod.Labels[key]
		}
	}
	return value
}

func (v *view) carriedByOthers(m *member, key, value string) bool {
	carries := func(pod *corev1.Pod) bool { return pod.Labels[key] == value }
	for i := range v.members {
		if o := &v.members[i]; o != m && slices.ContainsFunc(o.pods, carries) {
			return true
		}
	}
	return slices.ContainsFunc(v.others, carries)
}

// checkServices refuses when a Service that has to be made exists already.
func (w *Writer) checkServices(ctx context.Context, v *view, wanted map[string]map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if v.services[name] == nil {
			if err := v.checkService(ctx, w.cached, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkService refuses a Service that is somebody else's.
func (v *view) checkService(ctx context.Context, reader client.Reader, name string) error {
	key := types.NamespacedName{Namespace: v.group.Profile.Namespace, Name: name}
	var service corev1.Service
	err := reader.Get(ctx, key, &service)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get Service %s: %w", key, err)
	case !v.owns(&service) && !v.stayed(&service):
		return routing.Refuse(v1alpha1.ReasonForeignObject,
			"Service %s exists and is not this profile's: remove it, or choose another group.name", key)
	}
	v.services[name] = &service
	return nil
}

// ensureServices makes Services as wanted. What is so already is not written.
func (w *Writer) ensureServices(ctx context.Context, v *view, wanted map[string]map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if v.services[name] == nil { // as far as the cache knows
			if err := v.checkService(ctx, w.live, name); err != nil {
				return err
			}
		}
		have := v.services[name]
		if have != nil && v.sameService(have, wanted[name]) {
			continue
		}
		object, err := v.serviceObject(name, wanted[name], v.port())
		if err != nil {
			return err
		}
		options := []client.ApplyOption{client.FieldOwner(routing.FieldOwner)}
		if have != nil {
			object.SetUID(have.UID)
			options = append(options, client.ForceOwnership)
		}
		if err := w.cached.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), options...); err != nil {
			return fmt.Errorf("apply Service %s/%s: %w", v.group.Profile.Namespace, name, err)
		}
		v.wrote = true
	}
	return nil
}

func (v *view) port() corev1.ServicePort {
	number := ptr.Deref(v.group.Target.Port, 0)
	port := corev1.ServicePort{Name: "vm", Port: number, TargetPort: intstr.FromInt32(number), Protocol: corev1.ProtocolTCP}
	if v.group.Target.Kind == v1alpha1.GroupGRPCRoute {
		port.AppProtocol = ptr.To("kubernetes.io/h2c")
	}
	return port
}

func (v *view) sameService(have *corev1.Service, selector map[string]string) bool {
	ports := have.Spec.Ports
	if !v.owns(have) || !v.generated() && !v.heldByRoute(have) {
		return false
	}
	return equality.Semantic.DeepEqual(have.Spec.Selector, selector) && len(ports) == 1 && equality.Semantic.DeepEqual(ports[0], v.port())
}

func (v *view) serviceObject(name string, selector map[string]string, port corev1.ServicePort) (*unstructured.Unstructured, error) {
	ports := map[string]any{
		"name": port.Name, "port": int64(port.Port), "targetPort": int64(port.Port), "protocol": string(port.Protocol),
	}
	if port.AppProtocol != nil {
		ports["appProtocol"] = *port.AppProtocol
	}
	object := v.object("v1", "Service", name)
	if !v.generated() {
		// Without it the route would name nothing when the profile goes: Kubernetes removes
		// what has lost all of its owners. It goes with the route then.
		object.SetOwnerReferences(append(object.GetOwnerReferences(), metav1.OwnerReference{
			APIVersion: v.route.GetAPIVersion(), Kind: v.route.GetKind(), Name: v.route.GetName(), UID: v.route.GetUID(),
		}))
	}
	object.SetLabels(map[string]string{
		LabelGroup: groupLabel(v.group), "app.kubernetes.io/managed-by": "joulevirt",
	})
	err := unstructured.SetNestedField(object.Object, map[string]any{
		"type": string(corev1.ServiceTypeClusterIP), "selector": toAny(selector), "ports": []any{ports},
	}, "spec")
	return object, err
}

// object is one that goes with the profile.
func (v *view) object(apiVersion, kind, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(apiVersion)
	object.SetKind(kind)
	object.SetNamespace(v.group.Profile.Namespace)
	object.SetName(name)
	object.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "VMNetworkProfile",
		Name: v.group.Profile.Name, UID: v.group.UID, Controller: ptr.To(true),
	}})
	return object
}

func toAny(in map[string]string) map[string]any {
	out := map[string]any{}
	for key, value := range in {
		out[key] = value
	}
	return out
}

// removeServices removes Services that the route, as its parents have it, names
// no more.
func (w *Writer) removeServices(ctx context.Context, v *view, wanted map[string]map[string]string) error {
	named := v.backends()
	for name, service := range v.services {
		if _, is := named[name]; is || wanted[name] != nil {
			continue
		}
		if err := w.removeService(ctx, service); err != nil {
			return err
		}
	}
	return nil
}

func (w *Writer) removeService(ctx context.Context, service *corev1.Service) error {
	err := w.cached.Delete(ctx, service, client.Preconditions{UID: &service.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Service %s/%s: %w", service.Namespace, service.Name, err)
	}
	return nil
}
