// Command manifests prints what virt-operator would install, as KubeVirt's own
// generators make it, as a stream of YAML documents on standard output:
//
//	manifests crds     the CustomResourceDefinitions and the priority class
//	manifests rbac     ServiceAccounts, roles and bindings of virt-api,
//	                   virt-controller and virt-handler
//	manifests webhooks the webhook configurations, APIServices and Service of
//	                   virt-api, without CA bundle: the installer fills in where
//	                   virt-api listens
//	manifests handler HANDLER LAUNCHER
//	                   virt-handler's DaemonSet, with the images of virt-handler
//	                   and virt-launcher
package main

import (
	"fmt"
	"os"

	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/rbac"
	"sigs.k8s.io/yaml"
)

// namespace is where KubeVirt is installed by default.
const namespace = "kubevirt"

func main() {
	if len(os.Args) != 2 && len(os.Args) != 4 {
		fail(fmt.Errorf("usage: manifests crds|rbac|webhooks|handler [HANDLER-IMAGE LAUNCHER-IMAGE]"))
	}
	objects, err := generate(os.Args[1], os.Args[2:]...)
	if err != nil {
		fail(err)
	}
	for _, o := range objects {
		text, err := yaml.Marshal(o)
		if err != nil {
			fail(fmt.Errorf("marshal %T: %w", o, err))
		}
		fmt.Printf("---\n%s", text)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "manifests:", err)
	os.Exit(1)
}

func generate(what string, images ...string) ([]any, error) {
	switch what {
	case "crds":
		return crds()
	case "rbac":
		var all []any
		for _, group := range [][]runtime.Object{
			controllerRBAC(), rbac.GetAllApiServer(namespace),
			rbac.GetAllHandler(namespace), rbac.GetAllCluster(),
		} {
			for _, o := range group {
				all = append(all, o)
			}
		}
		return all, nil
	case "webhooks":
		all := []any{
			components.NewVirtAPIMutatingWebhookConfiguration(namespace),
			components.NewVirtAPIValidatingWebhookConfiguration(namespace),
			components.NewApiServerService(namespace),
		}
		for _, service := range components.NewVirtAPIAPIServices(namespace) {
			all = append(all, service)
		}
		return all, nil
	case "handler":
		if len(images) != 2 {
			return nil, fmt.Errorf("handler: want the images of virt-handler and virt-launcher")
		}
		return []any{handler(images[0], images[1])}, nil
	}
	return nil, fmt.Errorf("unknown part %q: want crds, rbac, webhooks or handler", what)
}

func crds() ([]any, error) {
	var all []any
	for _, make := range append(newCRDs(), []func() (*extv1.CustomResourceDefinition, error){
		components.NewVirtualMachineInstanceCrd, components.NewVirtualMachineCrd,
		components.NewPresetCrd, components.NewReplicaSetCrd,
		components.NewVirtualMachineInstanceMigrationCrd, components.NewKubeVirtCrd,
		components.NewVirtualMachinePoolCrd, components.NewVirtualMachineSnapshotCrd,
		components.NewVirtualMachineSnapshotContentCrd, components.NewVirtualMachineRestoreCrd,
		components.NewVirtualMachineExportCrd, components.NewVirtualMachineInstancetypeCrd,
		components.NewVirtualMachineClusterInstancetypeCrd, components.NewVirtualMachinePreferenceCrd,
		components.NewVirtualMachineClusterPreferenceCrd, components.NewMigrationPolicyCrd,
		components.NewVirtualMachineCloneCrd,
	}...) {
		crd, err := make()
		if err != nil {
			return nil, err
		}
		crd.Status = extv1.CustomResourceDefinitionStatus{}
		all = append(all, crd)
	}
	return append(all, components.NewKubeVirtPriorityClassCR()), nil
}
