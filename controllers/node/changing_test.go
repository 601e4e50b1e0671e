package node

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/test/controllertest"
)

// changed is the plan of a node that was changed some time ago, as its agent knows it.
func changed(node string, ago time.Duration, observed int64, applied metav1.ConditionStatus) v1alpha1.NodePlan {
	plan := v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Name: node, Generation: 2}}
	at := metav1.NewTime(controllertest.StatusTime().Add(-ago))
	plan.Spec = v1alpha1.NodePlanSpec{Policy: "p", Apply: true, ChangedAt: &at}
	plan.Status.ObservedGeneration = observed
	plan.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionApplied, Status: applied, LastTransitionTime: at,
	}}
	return plan
}

// A node counts until its agent has confirmed, for ten minutes at most.
func TestIsChanging(t *testing.T) {
	edited := func(edit func(*v1alpha1.NodePlan)) v1alpha1.NodePlan {
		plan := changed("n", 0, 1, "True")
		edit(&plan)
		return plan
	}
	for name, tc := range map[string]struct {
		plan v1alpha1.NodePlan
		want bool
	}{
		"not looked at":          {changed("n", time.Minute, 1, "True"), true},
		"could not":              {changed("n", time.Minute, 2, "False"), true},
		"confirmed":              {changed("n", time.Minute, 2, "True"), false},
		"dead for long":          {changed("n", 10*time.Minute, 1, "True"), false},
		"not yet for long":       {changed("n", 10*time.Minute-time.Second, 1, "True"), true},
		"reported by a fast one": {changed("n", -9*time.Minute, 1, "True"), true},
		"reported by a mad one":  {changed("n", -time.Hour, 1, "True"), false},
		"nothing new":            {edited(func(p *v1alpha1.NodePlan) { p.Spec.ChangedAt = nil }), false},
		"not acted on":           {edited(func(p *v1alpha1.NodePlan) { p.Spec.Apply = false }), false},
	} {
		if got := objects.IsChanging(&tc.plan, controllertest.StatusTime()); got != tc.want {
			t.Errorf("%s: changing %t, want %t", name, got, tc.want)
		}
	}
}

func TestNodesChangeInTurns(t *testing.T) {
	var c nodesChanging
	var plans []v1alpha1.NodePlan
	take := func(node string, want bool) {
		t.Helper()
		if got := c.take(node, "p", 2, plans, controllertest.StatusTime()); got != want {
			t.Errorf("%s may change: %t, want %t", node, got, want)
		}
	}
	take("a", true)
	take("b", true)
	take("c", false)
	take("a", true) // again
	take("d", false)
	// Of another policy there are others.
	if !c.take("x", "q", 1, plans, controllertest.StatusTime()) {
		t.Error("the nodes of another policy count")
	}
	// What was written counts until the cache shows it, and then as it shows it.
	c.wrote("a", 2)
	take("c", false)
	older := changed("a", time.Minute, 1, "True")
	older.Generation = 1
	plans = []v1alpha1.NodePlan{older}
	take("c", false)
	plans = []v1alpha1.NodePlan{changed("a", time.Minute, 1, "True")}
	take("c", false)
	plans = []v1alpha1.NodePlan{changed("a", time.Minute, 2, "True")}
	take("c", true)
	take("d", false)
	take("e", false)
	take("f", false)
	c.drop("b")
	take("d", true)
	for _, want := range []string{"e", "f", ""} {
		if got := c.next("p"); got != want {
			t.Errorf("%q is next, want %q", got, want)
		}
	}
}

// A node that waits no longer is not woken in place of one that does.
func TestNodesLeaveTheLine(t *testing.T) {
	var c nodesChanging
	busy := []v1alpha1.NodePlan{changed("a", time.Minute, 1, "True")}
	for _, node := range []string{"b", "c", "d", "e"} {
		c.take(node, "p", 1, busy, controllertest.StatusTime())
	}
	c.leave("b")
	c.take("c", "q", 0, nil, controllertest.StatusTime()) // it has another policy now
	for _, want := range []string{"d", "e", ""} {
		if got := c.next("p"); got != want {
			t.Errorf("%q is next, want %q", got, want)
		}
	}
	if got := c.next("q"); got != "c" || len(c.waiting) > 0 {
		t.Errorf("%q is next of the other policy, %d lines are left", got, len(c.waiting))
	}
}

// The node that has waited longest is planned when another is done.
func TestWaitingNodesAreWoken(t *testing.T) {
	var c nodesChanging
	busy := changed("a", time.Minute, 1, "True")
	for _, node := range []string{"b", "c"} {
		c.take(node, "p", 1, []v1alpha1.NodePlan{busy}, controllertest.StatusTime())
	}
	done := changed("a", time.Minute, 2, "True")
	h := c.handler(testingclock.NewFakePassiveClock(controllertest.StatusTime()))
	for _, step := range []struct {
		name     string
		was, is  client.Object
		want     string
		queueing int
	}{
		{"still at it", &busy, &busy, "", 0},
		{"done", &busy, &done, "b", 1},
		{"was done", &done, &done, "", 0},
		{"gone", &busy, nil, "c", 1},
	} {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		if step.is == nil {
			h.Delete(t.Context(), event.DeleteEvent{Object: step.was}, q)
		} else {
			h.Update(t.Context(), event.UpdateEvent{ObjectOld: step.was, ObjectNew: step.is}, q)
		}
		if q.Len() != step.queueing {
			t.Fatalf("%s: %d nodes are woken, want %d", step.name, q.Len(), step.queueing)
		}
		if q.Len() > 0 {
			if request, _ := q.Get(); request.Name != step.want {
				t.Errorf("%s: node %s is woken, want %s", step.name, request.Name, step.want)
			}
		}
		q.ShutDown()
	}
}
