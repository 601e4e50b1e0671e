package watch

import (
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/kube"
)

// ManagerLease is the name of the Lease that the manager renews.
const ManagerLease = "joulevirt-manager"

// Labels of KubeVirt's: of launcher pods, of the VMI that a pod runs, and of a VMI's node.
const (
	appLabel       = "kubevirt.io"
	launcher       = "virt-launcher"
	createdByLabel = "kubevirt.io/created-by"
	nodeNameLabel  = "kubevirt.io/nodeName"
)

// informers watch what concerns a node.
type informers struct {
	pods, vmis, plans, leases cache.SharedInformer
}

func newInformers(client *kube.Client, node, namespace string) (*informers, error) {
	is := &informers{}
	named := func(name string) string { return fields.OneTermEqualSelector(metav1.ObjectNameField, name).String() }
	for _, one := range []struct {
		informer  *cache.SharedInformer
		object    runtime.Object
		selection kube.Selection
	}{
		{&is.pods, &metav1.PartialObjectMetadata{}, kube.Selection{
			Path: "/api/v1/pods", MetadataOnly: true, Fields: fields.OneTermEqualSelector("spec.nodeName", node).String(),
			Labels: labels.SelectorFromSet(labels.Set{appLabel: launcher}).String(),
		}},
		{&is.vmis, &kube.VMI{}, kube.Selection{
			Path:   "/apis/kubevirt.io/v1/virtualmachineinstances",
			Labels: labels.SelectorFromSet(labels.Set{nodeNameLabel: node}).String(),
		}},
		{&is.plans, &v1alpha1.NodePlan{}, kube.Selection{Path: "/apis/joulevirt.io/v1alpha1/nodeplans", Fields: named(node)}},
		{&is.leases, &coordinationv1.Lease{}, kube.Selection{
			Path: "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases", Fields: named(ManagerLease),
		}},
	} {
		informer := cache.NewSharedInformer(client.ListWatch(one.selection), one.object, 0)
		if err := informer.SetTransform(trim); err != nil {
			return nil, err
		}
		*one.informer = informer
	}
	return is, nil
}

// trim leaves out what nobody reads.
func trim(object any) (any, error) {
	switch o := object.(type) {
	case *metav1.PartialObjectMetadata:
		createdBy := o.Labels[createdByLabel]
		o.ObjectMeta = trimMeta(&o.ObjectMeta)
		o.Labels = map[string]string{createdByLabel: createdBy}
	case *kube.VMI:
		o.ObjectMeta = trimMeta(&o.ObjectMeta)
	case metav1.Object:
		o.SetManagedFields(nil)
	}
	return object, nil
}

func trimMeta(o *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace, UID: o.UID, ResourceVersion: o.ResourceVersion}
}

func podOf(pod *metav1.PartialObjectMetadata) discover.Pod {
	return discover.Pod{UID: string(pod.UID), Namespace: pod.Namespace, CreatedBy: pod.Labels[createdByLabel]}
}

func vmiOf(vmi *kube.VMI) discover.VMI {
	v := discover.VMI{
		UID: string(vmi.UID), Namespace: vmi.Namespace, Name: vmi.Name,
		Dedicated: vmi.Spec.Domain.CPU.DedicatedCPUPlacement,
	}
	for uid := range vmi.Status.ActivePods {
		v.ActivePods = append(v.ActivePods, string(uid))
	}
	slices.Sort(v.ActivePods)
	return v
}
