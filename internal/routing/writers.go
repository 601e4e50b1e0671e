package routing

import "github.com/joulevirt/joulevirt/api/v1alpha1"

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
	case v1alpha1.GroupHTTPRoute, v1alpha1.GroupGRPCRoute, v1alpha1.GroupTLSRoute, v1alpha1.GroupTCPRoute:
		return w.Route
	}
	return nil
}
