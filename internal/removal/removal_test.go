package removal

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

func migrationIn(name string, phase virtv1.VirtualMachineInstanceMigrationPhase, labels map[string]string) *virtv1.VirtualMachineInstanceMigration {
	return &virtv1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: labels},
		Status:     virtv1.VirtualMachineInstanceMigrationStatus{Phase: phase},
	}
}

// givesUp returns what a wait says after a minute of a clock that goes on only while it waits.
func givesUp(t *testing.T, wait func(context.Context) error) (err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err = wait(ctx)
	})
	return err
}

// A removal waits for VMs that are being moved, and deletes what is left of moves, but no migration
// of somebody else.
func TestWaitMigrations(t *testing.T) {
	scheme := fake.NewFakeClient().Scheme()
	if err := virtv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	mine := map[string]string{v1alpha1.LabelPlacement: v1alpha1.PlacementMoveLabel}
	running := migrationIn("running", virtv1.MigrationRunning, mine)
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		running, migrationIn("failed", virtv1.MigrationFailed, mine), migrationIn("foreign", virtv1.MigrationRunning, nil),
	).Build()
	r := &remover{Options: Options{Poll: time.Second, Clock: clock.RealClock{}, Report: func(string, ...any) {}}, client: c}
	if err := givesUp(t, r.waitMigrations); err == nil || !strings.Contains(err.Error(), "shop/running in phase Running") {
		t.Fatalf("it does not wait: %v", err)
	}
	running.Status.Phase = virtv1.MigrationSucceeded
	if err := c.Update(t.Context(), running); err != nil {
		t.Fatal(err)
	}
	if err := r.waitMigrations(t.Context()); err != nil {
		t.Fatal(err)
	}
	var left virtv1.VirtualMachineInstanceMigrationList
	if err := c.List(t.Context(), &left, client.InNamespace("shop")); err != nil || len(left.Items) != 1 || left.Items[0].Name != "foreign" {
		t.Errorf("left are %v, %v", left.Items, err)
	}
}

// A removal waits for hosts that are powered on, and reports one that did not come back.
func TestWaitHosts(t *testing.T) {
	node := func(name string, annotations map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
	}
	off := node("off", map[string]string{v1alpha1.AnnotationHostPower: "{}"})
	c := fake.NewClientBuilder().WithObjects(
		off, node("on", nil), node("lost", map[string]string{v1alpha1.AnnotationHostPower: "{}", v1alpha1.AnnotationHostFailed: "why"}),
	).Build()
	var reports []string
	r := &remover{client: c, Options: Options{Poll: time.Second, Clock: clock.RealClock{}, Report: func(format string, args ...any) {
		reports = append(reports, fmt.Sprintf(format, args...))
	}}}
	if err := givesUp(t, r.waitHosts); err == nil || !strings.Contains(err.Error(), "node off") || strings.Contains(err.Error(), "node lost") {
		t.Fatalf("it does not wait for one host alone: %v", err)
	}
	off.Annotations = nil
	if err := c.Update(t.Context(), off); err != nil {
		t.Fatal(err)
	}
	if err := r.waitHosts(t.Context()); err != nil {
		t.Fatal(err)
	}
	if last := reports[len(reports)-1]; !strings.Contains(last, "kubectl uncordon lost; kubectl annotate node lost joulevirt.io/host-power- joulevirt.io/host-failed-") {
		t.Errorf("the last report is %q", last)
	}
}

// A removal waits until the manager has removed gateways, whatever else has their label, and deletes
// HybridWorkloads.
func TestWaitGateways(t *testing.T) {
	scheme := fake.NewFakeClient().Scheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	pod := func(name string, owners ...metav1.OwnerReference) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{v1alpha1.LabelGateway: "uid"}, OwnerReferences: owners}}
	}
	gateway := pod("gateway", metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "HybridWorkload", Name: "web", UID: "1", Controller: ptr.To(true)})
	hybrid := &v1alpha1.HybridWorkload{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(gateway, pod("forged"), hybrid).Build()
	r := &remover{Options: Options{Poll: time.Second, Clock: clock.RealClock{}, Report: func(string, ...any) {}}, client: c}
	if err := givesUp(t, r.waitGateways); err == nil || !strings.Contains(err.Error(), "gateway shop/gateway") || strings.Contains(err.Error(), "forged") {
		t.Fatalf("it does not wait for the gateway alone: %v", err)
	}
	if err := c.Delete(t.Context(), gateway); err != nil {
		t.Fatal(err)
	}
	if err := r.waitGateways(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.endHybridWorkloads(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(hybrid), hybrid); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the HybridWorkload is there: %v", err)
	}
}

// A removal deletes the volumes of shares alone, and needs no right where there can be none.
func TestEndShares(t *testing.T) {
	volume := func(name string, labels map[string]string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}
	c := fake.NewClientBuilder().WithObjects(volume("share", map[string]string{v1alpha1.LabelShare: "true"}), volume("foreign", nil)).Build()
	var reports []string
	r := &remover{client: c, Options: Options{Report: func(format string, args ...any) { reports = append(reports, fmt.Sprintf(format, args...)) }}}
	if err := r.endShares(t.Context()); err != nil || len(reports) != 1 || reports[0] != "unmounted 1 shares of VMs" {
		t.Errorf("reports %q: %v", reports, err)
	}
	var left corev1.PersistentVolumeList
	if err := c.List(t.Context(), &left); err != nil || len(left.Items) != 1 || left.Items[0].Name != "foreign" {
		t.Errorf("left are %v: %v", left.Items, err)
	}
	r.client = interceptor.NewClient(c, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumes"}, "", nil)
	}})
	if err := r.endShares(t.Context()); err != nil {
		t.Errorf("without path SharedMemory: %v", err)
	}
}
