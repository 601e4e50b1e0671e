package publish

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/kube"
)

// Paths of the agent's kinds.
const (
	reports = "/apis/joulevirt.io/v1alpha1/nodereports"
	plans   = "/apis/joulevirt.io/v1alpha1/nodeplans"
)

// Writer writes the agent's two statuses. It is their only writer, so it
// replaces them as a whole, without a resource version.
type Writer struct {
	client *kube.Client
	node   string
}

// NewWriter returns the writer of a node.
func NewWriter(c *kube.Client, node string) *Writer { return &Writer{client: c, node: node} }

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Previous returns the status of the NodeReport; nil when there is none.
func (w *Writer) Previous(ctx context.Context) (*v1alpha1.NodeReportStatus, error) {
	var report v1alpha1.NodeReport
	err := w.client.Get(ctx, reports+"/"+w.node, &report)
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
	var list v1alpha1.NodePlanList
	named := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, w.node).String()}
	if err := w.client.List(ctx, plans, &list, named); err != nil {
		return nil, fmt.Errorf("read NodePlan %s: %w", w.node, err)
	}
	if len(list.Items) == 0 {
		return nil, nil
	}
	return &list.Items[0], nil
}

// Report writes the status of the NodeReport, which it creates when missing.
func (w *Writer) Report(ctx context.Context, status v1alpha1.NodeReportStatus) error {
	err := w.replaceStatus(ctx, reports, status)
	if apierrors.IsNotFound(err) {
		if err := w.createReport(ctx); err != nil {
			return err
		}
		err = w.replaceStatus(ctx, reports, status)
	}
	if err != nil {
		return fmt.Errorf("write NodeReport %s: %w", w.node, err)
	}
	return nil
}

// createReport creates the NodeReport as a dependent of its Node, with which
// it goes.
func (w *Writer) createReport(ctx context.Context) error {
	node, err := w.client.GetMetadata(ctx, "/api/v1/nodes/"+w.node)
	if err != nil {
		return fmt.Errorf("read Node %s, which is to own the NodeReport: %w", w.node, err)
	}
	report := &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{
		Name: w.node,
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID,
		}},
	}}
	if err := w.client.Create(ctx, reports, report); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create NodeReport %s: %w", w.node, err)
	}
	return nil
}

// PlanStatus writes the status of a NodePlan, if it is still the object of
// that UID.
func (w *Writer) PlanStatus(ctx context.Context, uid types.UID, status v1alpha1.NodePlanStatus) error {
	err := w.replaceStatus(ctx, plans, status, operation{Op: "test", Path: "/metadata/uid", Value: uid})
	if err != nil {
		return fmt.Errorf("write status of NodePlan %s: %w", w.node, err)
	}
	return nil
}

func (w *Writer) replaceStatus(ctx context.Context, path string, status any, first ...operation) error {
	patch, err := json.Marshal(append(first, operation{Op: "add", Path: "/status", Value: status}))
	if err != nil {
		return fmt.Errorf("encode status: %w", err)
	}
	return w.client.Patch(ctx, path+"/"+w.node+"/status", types.JSONPatchType, patch)
}
