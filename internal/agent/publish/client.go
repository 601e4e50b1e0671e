package publish

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// Writer writes the agent's two statuses. It is their only writer, so it
// replaces them as a whole, without a resource version.
type Writer struct {
	client client.Client
	node   string
}

// NewWriter returns the writer of a node.
func NewWriter(c client.Client, node string) *Writer { return &Writer{client: c, node: node} }

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Previous returns the status of the NodeReport; nil when there is none.
func (w *Writer) Previous(ctx context.Context) (*v1alpha1.NodeReportStatus, error) {
	var report v1alpha1.NodeReport
	err := w.client.Get(ctx, client.ObjectKey{Name: w.node}, &report)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read NodeReport %s: %w", w.node, err)
	}
	return &report.Status, nil
}

// Plan returns the NodePlan; nil when there is none. The agent may list it, not get it.
func (w *Writer) Plan(ctx context.Context) (*v1alpha1.NodePlan, error) {
	var plans v1alpha1.NodePlanList
	if err := w.client.List(ctx, &plans, client.MatchingFields{metav1.ObjectNameField: w.node}); err != nil {
		return nil, fmt.Errorf("read NodePlan %s: %w", w.node, err)
	}
	if len(plans.Items) == 0 {
		return nil, nil
	}
	return &plans.Items[0], nil
}

// Report writes the status of the NodeReport, which it creates when missing.
func (w *Writer) Report(ctx context.Context, status v1alpha1.NodeReportStatus) error {
	report := &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: w.node}}
	err := w.replaceStatus(ctx, report, status)
	if apierrors.IsNotFound(err) {
		if err := w.createReport(ctx); err != nil {
			return err
		}
		err = w.replaceStatus(ctx, report, status)
	}
	if err != nil {
		return fmt.Errorf("write NodeReport %s: %w", w.node, err)
	}
	return nil
}

// createReport creates the NodeReport as a dependent of its Node, with which
// it goes.
func (w *Writer) createReport(ctx context.Context) error {
	var node corev1.Node
	if err := w.client.Get(ctx, client.ObjectKey{Name: w.node}, &node); err != nil {
		return fmt.Errorf("read Node %s, which is to own the NodeReport: %w", w.node, err)
	}
	report := &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{
		Name: w.node,
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Node", Name: node.Name, UID: node.UID,
		}},
	}}
	if err := w.client.Create(ctx, report); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create NodeReport %s: %w", w.node, err)
	}
	return nil
}

// PlanStatus writes the status of a NodePlan, if it is still the object of
// that UID.
func (w *Writer) PlanStatus(ctx context.Context, uid types.UID, status v1alpha1.NodePlanStatus) error {
	plan := &v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Name: w.node}}
	err := w.replaceStatus(ctx, plan, status, operation{Op: "test", Path: "/metadata/uid", Value: uid})
	if err != nil {
		return fmt.Errorf("write status of NodePlan %s: %w", w.node, err)
	}
	return nil
}

func (w *Writer) replaceStatus(ctx context.Context, object client.Object, status any, first ...operation) error {
	patch, err := json.Marshal(append(first, operation{Op: "add", Path: "/status", Value: status}))
	if err != nil {
		return fmt.Errorf("encode status: %w", err)
	}
	return w.client.Status().Patch(ctx, object, client.RawPatch(types.JSONPatchType, patch))
}
