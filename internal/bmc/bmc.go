// Package bmc powers the hosts of nodes off and on, by Metal3 or by Redfish.
package bmc

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// Host is the machine of a node.
type Host interface {
	// Refuses returns why the host must not be powered off. Nil: it may be.
	Refuses() error
	// IsOn returns whether the machine has power.
	IsOn() bool
	// PowerOff asks the machine to shut down, or cuts its power by force. It does not wait.
	PowerOff(ctx context.Context, force bool) error
	// PowerOn ends what PowerOff began. It does not wait.
	PowerOn(ctx context.Context) error
}

// Error says what keeps a host from being powered. Its text names object, field, problem and remedy.
type Error struct {
	Reason string
	text   string
}

func (e *Error) Error() string { return e.text }

// Refuse returns an Error.
func Refuse(reason, format string, args ...any) error {
	return &Error{Reason: reason, text: fmt.Sprintf(format, args...)}
}

// Find returns the host of a node as it is now. The client must not be a cache: it would need the
// right to list Secrets.
func Find(ctx context.Context, c client.Client, by *v1alpha1.HostPower, node *corev1.Node) (Host, error) {
	if by.Metal3 != nil {
		return findMetal3(ctx, c, by.Metal3, node)
	}
	return findRedfish(ctx, c, by.Redfish, node)
}
