package controllers

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// leases says who holds the Lease, and counts who asks.
type leases struct {
	holder string
	err    error
	asked  int
}

func (l *leases) Holder(context.Context) (string, error) {
	l.asked++
	return l.holder, l.err
}

func TestFenceAsksOnceASecond(t *testing.T) {
	clock, lease := testingclock.NewFakePassiveClock(statusTime()), &leases{holder: "me"}
	fence := &Fence{Identity: "me", Holder: lease.Holder, Clock: clock}
	unknown := errors.New("no answer")
	for i, step := range []struct {
		after  time.Duration
		holder string
		err    error
		asked  int
		want   error
	}{
		{0, "me", nil, 1, nil},
		{fenceTrust - 1, "other", nil, 1, nil}, // it was asked just now
		{1, "other", nil, 2, ErrNotLeading},
		{0, "me", nil, 3, nil},                 // no is not remembered
		{time.Minute, "", unknown, 4, unknown}, // stood still
		{0, "", nil, 5, ErrNotLeading},         // the Lease is gone
		{0, "me", nil, 6, nil},
	} {
		clock.SetTime(clock.Now().Add(step.after))
		lease.holder, lease.err = step.holder, step.err
		if err := fence.Check(t.Context()); !errors.Is(err, step.want) || lease.asked != step.asked {
			t.Errorf("step %d: %v after asking %d times, want %v after %d", i, err, lease.asked, step.want, step.asked)
		}
	}
}

// Whatever a manager writes, it writes nothing when another leads, and reads all the same.
func TestFencedWrites(t *testing.T) {
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	}
	ctx := t.Context()
	inner := fake.NewClientBuilder().WithObjects(pod("a")).WithStatusSubresource(&corev1.Pod{}).Build()
	lease := &leases{holder: "other"}
	fence := &Fence{Identity: "me", Holder: lease.Holder, Clock: testingclock.NewFakePassiveClock(statusTime())}
	c := Fenced(inner, fence)
	patch := client.RawPatch(client.Merge.Type(), []byte(`{"metadata":{"labels":{"x":"y"}}}`))
	nothing := client.ApplyConfigurationFromUnstructured(nil)
	for name, write := range map[string]func() error{
		"create":       func() error { return c.Create(ctx, pod("b")) },
		"update":       func() error { return c.Update(ctx, pod("a")) },
		"patch":        func() error { return c.Patch(ctx, pod("a"), patch) },
		"apply":        func() error { return c.Apply(ctx, nothing) },
		"delete":       func() error { return c.Delete(ctx, pod("a")) },
		"delete all":   func() error { return c.DeleteAllOf(ctx, pod("")) },
		"status":       func() error { return c.Status().Update(ctx, pod("a")) },
		"patch status": func() error { return c.Status().Patch(ctx, pod("a"), patch) },
		"apply status": func() error { return c.Status().Apply(ctx, nothing) },
		"create part":  func() error { return c.SubResource("binding").Create(ctx, pod("a"), pod("a")) },
	} {
		if err := write(); !errors.Is(err, ErrNotLeading) {
			t.Errorf("%s: %v, want ErrNotLeading", name, err)
		}
	}
	var pods corev1.PodList
	if err := c.List(ctx, &pods); err != nil || len(pods.Items) != 1 || pods.Items[0].Labels != nil {
		t.Errorf("there are %+v, %v: want what there was", pods.Items, err)
	}
	lease.holder = "me"
	if err := c.Patch(ctx, pod("a"), patch); err != nil {
		t.Error(err)
	}
	if err := c.Status().Patch(ctx, pod("a"), patch); err != nil {
		t.Error(err)
	}
}
