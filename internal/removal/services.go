package removal

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing/pods"
)

// checkServices refuses while a Service selects by the label that VMs have from the product alone:
// those that start later would not serve.
func (r *remover) checkServices(ctx context.Context) error {
	vms, err := r.labelledVMs(ctx)
	if err != nil || len(vms) == 0 {
		return err
	}
	var services corev1.ServiceList
	if err := r.list(ctx, &services); err != nil {
		return err
	}
	if names := depending(services.Items, vms); len(names) > 0 {
		return fmt.Errorf("selector of Service %s has label %s, which its VMs have only while the product runs: remove this line, "+
			"or add the label to spec.template.metadata.labels of the VMs and restart them, and try again", few(names), v1alpha1.LabelServing)
	}
	return nil
}

// waitServices waits until the manager has restored the selectors that it had extended.
func (r *remover) waitServices(ctx context.Context) error {
	return r.wait(ctx, "Services select as before", func(ctx context.Context) ([]string, error) {
		return r.named(ctx, corev1.SchemeGroupVersion.WithKind("Service"), client.HasLabels{v1alpha1.LabelAdopted})
	})
}

// waitVMs waits until VMs have no label of the manager's. With their profiles it stays.
func (r *remover) waitVMs(ctx context.Context) error {
	if r.KeepObjects {
		return nil
	}
	return r.wait(ctx, "VMs have no label of the manager", func(ctx context.Context) ([]string, error) {
		vms, err := r.labelledVMs(ctx)
		var left []string
		for i := range vms {
			left = append(left, fmt.Sprintf("label %s of VM %s/%s", v1alpha1.LabelServing, vms[i].Namespace, vms[i].Name))
		}
		return left, err
	})
}

// labelledVMs are those that have the label from the manager.
func (r *remover) labelledVMs(ctx context.Context) ([]metav1.PartialObjectMetadata, error) {
	vms, err := pods.LabelledVMs(ctx, r.client)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	return vms, err
}
