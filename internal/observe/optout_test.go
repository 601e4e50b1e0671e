package observe

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

func annotated(value string) *corev1.Node {
	node := &corev1.Node{}
	node.Annotations = map[string]string{v1alpha1.AnnotationOptOut: value}
	return node
}

func TestOptOut(t *testing.T) {
	levers := func(levers ...model.Lever) model.OptOut { return model.OptOut{Levers: levers} }
	all := func(unreadable string) model.OptOut { return model.OptOut{All: true, Unreadable: unreadable} }
	for value, want := range map[string]model.OptOut{
		"true": all(""), " true ": all(""), "false": {},
		"Affinity": levers(model.LeverAffinity), "Affinity, Buffering": levers(model.LeverAffinity, model.LeverBuffering),
		"TrafficShare,Slice,Shaping": levers(model.LeverTrafficShare, model.LeverSlice, model.LeverShaping),
		"":                           all(`""`), "yes": all(`"yes"`), "affinity": all(`"affinity"`), "Affinity,": all(`"Affinity,"`),
		"Affinity;Slice": all(`"Affinity;Slice"`), "True": all(`"True"`), "true,Affinity": all(`"true,Affinity"`),
		strings.Repeat("x", 1000): all(`"` + strings.Repeat("x", 24) + `"`),
	} {
		if diff := cmp.Diff(want, OptOut(annotated(value))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", value, diff)
		}
	}
	if got := OptOut(&corev1.Node{}); got.Keeps(model.LeverAffinity) {
		t.Errorf("without the annotation %+v", got)
	}
	if none := (&corev1.Node{}); !OptOutChanged(none, annotated("")) || OptOutChanged(annotated("true"), annotated("true")) || !OptOutChanged(annotated("true"), none) {
		t.Error("changes of the annotation are not seen")
	}
}

// All that there is of levers can be opted out of.
func TestOptOutKnowsAllLevers(t *testing.T) {
	for _, lever := range allLevers() {
		if got := OptOut(annotated(string(lever))); got.All || !got.Keeps(model.Lever(lever)) {
			t.Errorf("%s: %+v", lever, got)
		}
	}
}
