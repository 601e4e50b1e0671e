// Package energy is how the product knows the power that nodes draw: sources
// that are asked in the order that a policy gives, each with a bound on the age
// of what it says, and each with its own failure. A source that does not know
// says so with a reason; it never says zero.
package energy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
)

// Reason is a CamelCase word that says why a source does not give the power of
// a node. The words are those of the API's conditions.
type Reason string

// Reasons why there is no power of a node from a source.
const (
	// ReasonUnreachable: the server does not answer, or not in time.
	ReasonUnreachable Reason = "Unreachable"
	// ReasonUnauthorized: the server refuses the credentials.
	ReasonUnauthorized Reason = "Unauthorized"
	// ReasonCredentials: the Secret is missing, unreadable, or not usable.
	ReasonCredentials Reason = "CredentialsInvalid"
	// ReasonQueryFailed: the server cannot evaluate the query.
	ReasonQueryFailed Reason = "QueryFailed"
	// ReasonNoSeries: no series of the node.
	ReasonNoSeries Reason = "NoSeries"
	// ReasonManySeries: several series where there can be only one.
	ReasonManySeries Reason = "ManySeries"
	// ReasonWrongType: the answer is of another kind than what was asked for.
	ReasonWrongType Reason = "WrongType"
	// ReasonNotFinite: NaN or infinite.
	ReasonNotFinite Reason = "NotFinite"
	// ReasonImplausible: no machine draws that.
	ReasonImplausible Reason = "Implausible"
	// ReasonWentBack: an energy counter went back without starting over.
	ReasonWentBack Reason = "WentBack"
	// ReasonJumped: far off what the meter said before.
	ReasonJumped Reason = "Jumped"
	// ReasonFrozen: the meter stands still.
	ReasonFrozen Reason = "Frozen"
	// ReasonStale: older than the source's freshness.
	ReasonStale Reason = "Stale"
	// ReasonAwaiting: too early to tell: counters need two readings.
	ReasonAwaiting Reason = "Awaiting"
	// ReasonNoCounters: the node has no energy counters.
	ReasonNoCounters Reason = "NoCounters"
	// ReasonPermission: the node's energy counters are not readable.
	ReasonPermission Reason = "PermissionDenied"
	// ReasonNoMeter: the node's agent reads no meter, or is not heard.
	ReasonNoMeter Reason = "NoMeter"
	// ReasonNoModel: the node's agent models no power, or is not heard.
	ReasonNoModel Reason = "NoModel"
)

// Refusal says why there is no power from a source: of one node, or of all.
type Refusal struct {
	Reason Reason
	// Message names what is wrong and what to do.
	Message string
}

// Error implements error.
func (r *Refusal) Error() string { return string(r.Reason) + ": " + r.Message }

// Refuse makes a Refusal.
func Refuse(reason Reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// RefusalIn returns the Refusal in an error's chain, or nil.
func RefusalIn(err error) *Refusal {
	if refusal := (*Refusal)(nil); errors.As(err, &refusal) {
		return refusal
	}
	return nil
}

// Answer is what a source knows at one moment. It is immutable.
type Answer struct {
	// Readings of the nodes that the source knows, by the node's name.
	Readings map[string]model.Power
	// Refused says why what the source has of a node cannot be used, by the
	// node's name. A node may be in neither: the source has nothing of it.
	Refused map[string]*Refusal
}

// Source is a meter of many nodes, such as a Prometheus server. It is used by
// one goroutine at a time.
type Source interface {
	// Read asks for the power of nodes. An error means that the whole source
	// failed; it wraps a Refusal, which says why. Nodes not given may be
	// answered too.
	Read(ctx context.Context, nodes []Node) (Answer, error)
}

// Node is a node as a source has to recognise it in the labels of its series.
type Node struct {
	// Name of the Kubernetes node.
	Name string
	// Addresses of the node: internal IPs and host names.
	Addresses []string
}

// Age of a reading at a moment. Clocks of nodes and servers differ a little: a
// reading from the future has age 0.
func Age(reading model.Power, now time.Time) time.Duration { return max(0, now.Sub(reading.Time)) }
