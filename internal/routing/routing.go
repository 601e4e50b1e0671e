// Package routing makes a group's traffic follow planned shares, by the means of
// the group's kind: the endpoints of a Service, or the weights of a Gateway API
// route. A writer reads what is in force from the cluster each time, changes
// only what it owns, and leaves traffic as it is when something forbids it.
package routing

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// FieldOwner is the name under which the manager owns what steers traffic.
const FieldOwner = "joulevirt-traffic"

// Pod is one launcher pod of a member. During a live migration a member has two.
type Pod struct {
	Name string
	UID  types.UID
	// Serving is the value of the label joulevirt.io/serving.
	Serving string
	// Profile is the name of the profile that marked the pod. Empty: none did.
	Profile string
	// Ready is true when the pod is ready and not being deleted.
	Ready bool
}

// Member is one VM of a group.
type Member struct {
	// Name of the VirtualMachineInstance, and its UID.
	Name string
	UID  types.UID
	// Labelled is true when the VirtualMachineInstance has the label joulevirt.io/serving,
	// which KubeVirt copies to each later launcher pod.
	Labelled bool
	// Starting is true until the VM runs: its pod may be ready before, and belongs to
	// the group, but is not counted on.
	Starting bool
	Pods     []Pod
}

// Ready returns whether the member may serve.
func (m *Member) Ready() bool {
	if m.Starting {
		return false
	}
	for i := range m.Pods {
		if m.Pods[i].Ready {
			return true
		}
	}
	return false
}

// Group is what a writer steers.
type Group struct {
	// Profile that declares the group.
	Profile types.NamespacedName
	UID     types.UID
	// Generation of the profile.
	Generation int64
	Target     v1alpha1.TrafficGroup
	// Members in the order of their names, those that are not ready too.
	Members []Member
}

// State is what is in force.
type State struct {
	// Shares of new traffic by member: 0 to 1. They add up to 1, or to 0 when
	// nobody serves.
	Shares map[string]float64
	// Settled is true when what was written last is in force everywhere.
	Settled bool
	// Message is what Write waits for. Empty when settled.
	Message string
	// Reverted is true when somebody else changed what was written: for Read as long
	// as it is so, for Write when it corrects that.
	Reverted bool
	// RevertedBy is the field manager that did so, as far as the API server knows.
	RevertedBy string
	// Attached is true when Detach has something to undo, also beside a Refusal.
	Attached bool
}

// Writer steers groups of one kind. All methods may be called again at any time
// and then do what is still to do.
type Writer interface {
	// Read returns what is in force. A Refusal says that the group cannot be
	// steered, and why.
	Read(ctx context.Context, group Group) (State, error)
	// Attach prepares the group to be steered, without moving traffic: its VMs and, with
	// consent of its owner and when adopt is true, its Service. A Refusal says what is
	// missing.
	Attach(ctx context.Context, group Group, adopt bool) error
	// Write changes what is in force towards shares of members by name: those that
	// are not named get none. It never leaves less than the group's minActive ready
	// members serving, when there are so many. More calls may be needed: State says
	// when it is settled. A Refusal says that traffic was left as it was.
	Write(ctx context.Context, group Group, shares map[string]float64) (State, error)
	// Release stops steering: all members serve alike, and what that does not need
	// is removed. Objects that are gone are no error.
	Release(ctx context.Context, group Group) error
	// Detach undoes Attach, and then releases. VMs keep their label, see pods.RemoveLabels.
	Detach(ctx context.Context, group Group) error
}

// Writers are the writers of all kinds of groups.
type Writers struct {
	// Service steers the endpoints of Services, Route the weights of Gateway API
	// routes of all kinds.
	Service, Route Writer
}

// For returns the writer of a kind of group. Nil: there is no such kind.
func (w Writers) For(kind v1alpha1.GroupTargetKind) Writer {
	switch kind {
	case v1alpha1.GroupService, "":
		return w.Service
	case v1alpha1.GroupHTTPRoute, v1alpha1.GroupGRPCRoute:
		return w.Route
	}
	return nil
}

// Refusal is why a group is not steered. Traffic was left as it was.
type Refusal struct {
	// Reason is one of the API's reasons.
	Reason string
	// Message names the object, the field, what is wrong and what to do.
	Message string
}

// Error implements error.
func (r *Refusal) Error() string { return r.Reason + ": " + r.Message }

// Refuse returns a Refusal.
func Refuse(reason, format string, args ...any) error {
	return &Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// IsReady returns whether a pod may serve.
func IsReady(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil {
		return false
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
