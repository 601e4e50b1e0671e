package observe

import (
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

// longestValue of an annotation that is repeated in messages, in bytes.
const longestValue = 24

// OptOut reads annotation joulevirt.io/opt-out of a VirtualMachineInstance or a node.
// What cannot be read counts as all levers: whoever wrote it wants less to be done.
func OptOut(object metav1.Object) model.OptOut {
	value, set := object.GetAnnotations()[v1alpha1.AnnotationOptOut]
	switch strings.TrimSpace(value) {
	case "true":
		return model.OptOut{All: true}
	case "false":
		return model.OptOut{}
	}
	if !set {
		return model.OptOut{}
	}
	var out model.OptOut
	for item := range strings.SplitSeq(value, ",") {
		lever := v1alpha1.Lever(strings.TrimSpace(item))
		if !slices.Contains(allLevers(), lever) {
			return model.OptOut{All: true, Unreadable: strconv.Quote(value[:min(len(value), longestValue)])}
		}
		out.Levers = append(out.Levers, model.Lever(lever))
	}
	return out
}

// OptOutChanged tells whether an object says something else than before.
func OptOutChanged(was, is metav1.Object) bool {
	before, had := was.GetAnnotations()[v1alpha1.AnnotationOptOut]
	now, has := is.GetAnnotations()[v1alpha1.AnnotationOptOut]
	return had != has || before != now
}

func allLevers() []v1alpha1.Lever {
	return []v1alpha1.Lever{
		v1alpha1.LeverTrafficShare, v1alpha1.LeverAffinity, v1alpha1.LeverSlice, v1alpha1.LeverBuffering, v1alpha1.LeverShaping,
	}
}
