package pods

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
)

// LabelVM adds the label to a VirtualMachineInstance: KubeVirt copies it to the launcher pods that
// it creates later, so that a VM that migrates keeps it. A VM that is gone, or another of the same
// name, is no error.
func LabelVM(ctx context.Context, writer client.Writer, name types.NamespacedName, uid types.UID) error {
	return setVMLabel(ctx, writer, name, uid, v1alpha1.ServingActive)
}

func setVMLabel(ctx context.Context, writer client.Writer, name types.NamespacedName, uid types.UID, value any) error {
	vm := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	vm.SetGroupVersionKind(virtv1.VirtualMachineInstanceGroupVersionKind)
	err := routing.Patch(ctx, writer, vm, map[string]any{"metadata": map[string]any{"uid": uid, "labels": map[string]any{v1alpha1.LabelServing: value}}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("patch label %s of VirtualMachineInstance %s: %w", v1alpha1.LabelServing, name, err)
	}
	return nil
}

// IsLabelOurs returns whether it was the manager that gave a VirtualMachineInstance the label. The
// object needs its managed fields.
func IsLabelOurs(vm metav1.Object) bool {
	return slices.Contains(routing.FieldManagers(vm, "f:metadata", "f:labels", "f:"+v1alpha1.LabelServing), routing.FieldOwner)
}

// pageSize bounds the memory of a list: the managed fields of a VM are some KiB.
const pageSize = 500

// LabelledVMs returns names, UIDs and labels of the VirtualMachineInstances that have the label from
// the manager.
func LabelledVMs(ctx context.Context, live client.Reader) ([]metav1.PartialObjectMetadata, error) {
	var ours []metav1.PartialObjectMetadata
	var page metav1.PartialObjectMetadataList
	for {
		next := page.Continue
		page = metav1.PartialObjectMetadataList{}
		page.SetGroupVersionKind(virtv1.GroupVersion.WithKind("VirtualMachineInstanceList"))
		if err := live.List(ctx, &page, client.HasLabels{v1alpha1.LabelServing}, client.Limit(pageSize), client.Continue(next)); err != nil {
			return nil, fmt.Errorf("list VirtualMachineInstances with label %s: %w", v1alpha1.LabelServing, err)
		}
		for i := range page.Items {
			if vm := &page.Items[i]; IsLabelOurs(vm) {
				ours = append(ours, metav1.PartialObjectMetadata{
					ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, Name: vm.Name, UID: vm.UID, Labels: vm.Labels},
				})
			}
		}
		if page.Continue == "" {
			return ours, nil
		}
	}
}

// RemoveLabels removes the label that the manager gave to VMs which no group has any more, and to
// their pods. As long as a Service of their namespace selects by the label, it stays.
func RemoveLabels(ctx context.Context, c client.Client, live client.Reader, inGroup func(*metav1.PartialObjectMetadata) bool) error {
	vms, err := LabelledVMs(ctx, live)
	if err != nil {
		return err
	}
	selecting := map[string]bool{}
	var failed []error
	for i := range vms {
		vm := &vms[i]
		if inGroup(vm) {
			continue
		}
		selects, known := selecting[vm.Namespace]
		if !known {
			if selects, err = selectsByLabel(ctx, live, vm.Namespace); err != nil {
				return err
			}
			selecting[vm.Namespace] = selects
		}
		if !selects {
			failed = append(failed, removeLabel(ctx, c, live, vm))
		}
	}
	return errors.Join(failed...)
}

func selectsByLabel(ctx context.Context, live client.Reader, namespace string) (bool, error) {
	var services corev1.ServiceList
	if err := live.List(ctx, &services, client.InNamespace(namespace)); err != nil {
		return false, fmt.Errorf("list Services of namespace %s: %w", namespace, err)
	}
	return slices.ContainsFunc(services.Items, func(s corev1.Service) bool { return s.Spec.Selector[v1alpha1.LabelServing] != "" }), nil
}

// removeLabel removes the label from the pods first: without it the VM is not found again.
func removeLabel(ctx context.Context, c client.Client, live client.Reader, vm *metav1.PartialObjectMetadata) error {
	var list corev1.PodList
	err := live.List(ctx, &list, client.InNamespace(vm.Namespace), client.MatchingLabels{virtv1.AppLabel: launcher}, client.HasLabels{v1alpha1.LabelServing})
	if err != nil {
		return fmt.Errorf("list launcher pods of VirtualMachineInstance %s/%s: %w", vm.Namespace, vm.Name, err)
	}
	for i := range list.Items {
		pod := &list.Items[i]
		if owner := metav1.GetControllerOfNoCopy(pod); owner == nil || owner.UID != vm.UID {
			continue
		}
		if err := Set(ctx, c, pod, Mark{}); err != nil {
			return err
		}
	}
	return setVMLabel(ctx, c, client.ObjectKeyFromObject(vm), vm.UID, nil)
}
