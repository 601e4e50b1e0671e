package explain

import (
	"strings"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/observe"
)

// ofKind tells whether an experiment says something of what is explained.
type ofKind func(*v1alpha1.LeverTrial) bool

// alone is how statuses name a class of one node or group.
const alone = "only "

// kindOfNode takes experiments on nodes like this one, whatever their VMs do: which word the
// manager has for the work of this node's is not told. Without a report all nodes may be like
// it.
func kindOfNode(name string, report *v1alpha1.NodeReport) ofKind {
	class := observe.ClassOf(report, "")
	kind := strings.TrimSuffix(class.String(), "workload=")
	return func(trial *v1alpha1.LeverTrial) bool {
		if trial.Lever == v1alpha1.LeverTrafficShare {
			return false
		}
		if only, isOne := strings.CutPrefix(trial.Class, alone); isOne {
			return only == name
		}
		return class.CPUModel == "" || strings.HasPrefix(trial.Class, kind)
	}
}

// kindOfGroup takes experiments on groups, but for those on other single ones.
func kindOfGroup(namespace, profile string) ofKind {
	return func(trial *v1alpha1.LeverTrial) bool {
		if trial.Lever != v1alpha1.LeverTrafficShare {
			return false
		}
		only, isOne := strings.CutPrefix(trial.Class, alone)
		return !isOne || only == namespace+"/"+profile
	}
}

func either(x, y ofKind) ofKind {
	return func(trial *v1alpha1.LeverTrial) bool { return x(trial) || y(trial) }
}
