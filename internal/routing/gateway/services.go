package gateway

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

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

// readable is how much of a name stays in the name of a Service, which has at
// most 63 characters.
const readable = 24

// serviceName names a member's Service. It is a DNS label: dots are replaced, long
// names are cut, and a hash of all keeps names apart.
func serviceName(group *routing.Group, member string) string {
	return fmt.Sprintf("jv-%s-%s-%s", shorten(group.Target.Name), shorten(member), hashOf(group, member))
}

// groupLabel distinguishes a group from former ones of the same profile.
func groupLabel(group *routing.Group) string {
	return string(group.UID) + "-" + hashOf(group)
}

func hashOf(group *routing.Group, parts ...string) string {
	parts = append([]string{string(group.Target.Kind), group.Target.Name}, parts...)
	sum := sha256.Sum256([]byte(strings.Join(parts, "/")))
	return fmt.Sprintf("%x", sum[:4])
}

func shorten(name string) string {
	name = strings.ReplaceAll(name, ".", "-")
	return strings.TrimRight(name[:min(len(name), readable)], "-")
}

// selectors returns the selector of each Service that the group needs, by the
// Service's name: the label that all pods of a VM carry. A member without a pod keeps the
// Service that it has.
func (v *view) selectors() map[string]map[string]string {
	out := map[string]map[string]string{}
	for i := range v.members {
		m := &v.members[i]
		name := serviceName(v.group, m.Name)
		if have := v.services[name]; have != nil {
			out[name] = have.Spec.Selector
		}
		if len(m.Pods) == 0 {
			continue
		}
		if id := m.Pods[0].Labels[virtv1.VirtualMachineInstanceIDLabel]; id != "" {
			out[name] = map[string]string{virtv1.AppLabel: "virt-launcher", virtv1.VirtualMachineInstanceIDLabel: id}
		}
	}
	return out
}

// ensureServices creates and corrects Services by their selectors.
func (w *Writer) ensureServices(ctx context.Context, v *view, wanted map[string]map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if v.services[name] == nil { // as far as the cache knows
			if err := w.findService(ctx, v, name); err != nil {
				return err
			}
		}
		have := v.services[name]
		if have != nil && v.isSameService(have, wanted[name]) {
			continue
		}
		object := v.buildService(name, wanted[name])
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

// findService reads a Service that the cache does not know, and refuses one that is somebody else's.
func (w *Writer) findService(ctx context.Context, v *view, name string) error {
	key := types.NamespacedName{Namespace: v.group.Profile.Namespace, Name: name}
	var service corev1.Service
	err := w.live.Get(ctx, key, &service)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get Service %s: %w", key, err)
	case !v.owns(&service):
		return routing.Refuse(v1alpha1.ReasonForeignObject,
			"Service %s exists and does not belong to this profile: remove it, or choose another group.name", key)
	}
	v.services[name] = &service
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

func (v *view) isSameService(have *corev1.Service, selector map[string]string) bool {
	ports := have.Spec.Ports
	return equality.Semantic.DeepEqual(have.Spec.Selector, selector) && len(ports) == 1 && equality.Semantic.DeepEqual(ports[0], v.port())
}

func (v *view) buildService(name string, selector map[string]string) *unstructured.Unstructured {
	port := v.port()
	ports := map[string]any{
		"name": port.Name, "port": int64(port.Port), "targetPort": int64(port.Port), "protocol": string(port.Protocol),
	}
	if port.AppProtocol != nil {
		ports["appProtocol"] = *port.AppProtocol
	}
	labels := map[string]any{}
	for key, value := range selector {
		labels[key] = value
	}
	object := v.newObject("v1", "Service", name)
	object.SetLabels(map[string]string{
		LabelGroup: groupLabel(v.group), "app.kubernetes.io/managed-by": "joulevirt",
	})
	object.Object["spec"] = map[string]any{
		"type": string(corev1.ServiceTypeClusterIP), "selector": labels, "ports": []any{ports},
	}
	return object
}

// newObject returns an object that the profile owns.
func (v *view) newObject(apiVersion, kind, name string) *unstructured.Unstructured {
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

// removeServices removes Services that are neither wanted nor backends of the
// route, which its parents have observed.
func (w *Writer) removeServices(ctx context.Context, v *view, wanted map[string]map[string]string) error {
	named := v.backends()
	for name, service := range v.services {
		if _, is := named[name]; is || wanted[name] != nil {
			continue
		}
		err := w.cached.Delete(ctx, service, client.Preconditions{UID: &service.UID})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete Service %s/%s: %w", service.Namespace, service.Name, err)
		}
	}
	return nil
}
