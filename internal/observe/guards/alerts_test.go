package guards

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
)

func TestAlerts(t *testing.T) {
	w := newWorld(t)
	w.pulls(3, one(shows{}))
	nodes := []string{"n"}
	alert := Alert{"Slow", []model.Lever{model.LeverAffinity}}
	there := []Named{{Node: "n", PodUID: "pod"}, {Node: "other policy's", PodUID: "x"}}
	step := func(d time.Duration, named []Named) []string {
		w.clock.Step(d)
		return w.store.Answered(alert, named, nodes)
	}
	if got := step(0, there); !cmp.Equal(got, nodes) || w.withdrawn("pod").Count != 1 || len(w.store.Of("other policy's", nil)) > 0 {
		t.Fatalf("%v, %+v", got, w.store.Of("n", nil))
	}
	message := w.withdrawn("pod").Words()
	for i := range 100 {
		if got := step(30*time.Second, there); len(got) > 0 || w.withdrawn("pod").Words() != message {
			t.Fatalf("answer %d: news %v, %+v", i, got, w.store.Of("n", nil))
		}
	}
	// Gone for less than five minutes, or not known to be.
	step(30*time.Second, nil)
	step(4*time.Minute, nil)
	step(30*time.Second, there)
	step(30*time.Second, nil)
	step(4*time.Minute, nil)
	w.store.Unanswered("Slow", nodes)
	if got := step(time.Hour, nil); len(got) > 0 || w.withdrawn("pod") == nil {
		t.Errorf("an alert that could not be asked for ended: %v", got)
	}
	if got := step(5*time.Minute, nil); !cmp.Equal(got, nodes) || w.withdrawn("pod") != nil {
		t.Errorf("gone for five minutes: %v, %+v", got, w.store.Of("n", nil))
	}
	// One that the policy drops ends, though not before its cool-down.
	w.pulls(3, one(shows{}))
	step(30*time.Second, there)
	if got := w.store.Alerts(map[string][]string{"n": {"Slow"}}); len(got) > 0 {
		t.Errorf("%v", got)
	}
	if got := w.store.Alerts(nil); !cmp.Equal(got, nodes) || w.withdrawn("pod").Until.Sub(w.clock.Now()) != 10*time.Minute {
		t.Errorf("%v %+v", got, w.store.Of("n", nil))
	}
}

// Two alerts name a VM: the lever comes back when both are gone. It did nothing when they
// came, so nothing speaks against it.
func TestTwoAlerts(t *testing.T) {
	w := newWorld(t)
	nodes, there := []string{"n"}, []Named{{Node: "n"}}
	answer := func(name string, named []Named) []string {
		return w.store.Answered(Alert{name, []model.Lever{model.LeverShaping}}, named, nodes)
	}
	answer("A", there)
	answer("B", there)
	answer("A", nil)
	w.clock.Step(6 * time.Minute)
	if got := answer("A", nil); len(got) > 0 {
		t.Errorf("ended while B is there: %v", got)
	}
	answer("B", nil)
	w.clock.Step(6 * time.Minute)
	if got := w.store.Of("n", nil); len(got) != 1 || got[0].Count != 0 {
		t.Errorf("%+v", got)
	}
	if got := answer("B", nil); !cmp.Equal(got, nodes) || len(w.store.Of("n", nil)) > 0 {
		t.Errorf("%v %+v", got, w.store.Of("n", nil))
	}
}

// Plans hold so many withdrawals and no more: then a lever is withdrawn from the node.
func TestBounds(t *testing.T) {
	w := newWorld(t)
	var named []Named
	for i := range 300 {
		named = append(named, Named{Node: "n", PodUID: fmt.Sprintf("%03d", i)})
	}
	w.store.Answered(Alert{"All", model.NodeLevers()}, named, []string{"n"})
	got := w.store.Of("n", nil)
	if len(got) != 4 {
		t.Fatalf("%d withdrawals", len(got))
	}
	for i, lever := range model.NodeLevers() {
		if x := got[i]; x.PodUID != "" || x.Lever != lever || !x.Until.IsZero() || !strings.Contains(x.Message, "300 VMs") {
			t.Errorf("%+v", x)
		}
	}
	if got := w.store.Of("n", got); len(got) != 4 {
		t.Errorf("read back: %d withdrawals", len(got))
	}
	w.store.Alerts(nil)
	w.clock.Step(time.Hour)
	w.store.Sweep()
	if len(w.store.nodes) > 0 {
		t.Errorf("%v is remembered", w.store.nodes)
	}
}
