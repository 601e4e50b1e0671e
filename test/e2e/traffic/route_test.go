//go:build e2e

package traffic

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/dataplane/gateway"
	"github.com/joulevirt/joulevirt/test/dataplane/load"
)

// routed is a group behind a route of the Gateway that serves the host.
func routed(name, host string) v1alpha1.TrafficGroup {
	return v1alpha1.TrafficGroup{
		Kind: v1alpha1.GroupHTTPRoute, Name: name, Port: ptr.To(int32(port)),
		Route: &v1alpha1.RouteTemplate{
			ParentRefs: []runtime.RawExtension{{Raw: fmt.Appendf(nil, `{"name":%q,"namespace":%q}`, gateway.Name, gateway.Namespace)}},
			Hostnames:  []string{host},
		},
	}
}

// visitors ask the Gateway for a host. Each request has a connection of its own
// also from there to a VM: as many packets as with a Service.
func (s *story) visitors(host string) load.Options {
	o := asked(clients, gateway.URL+"?close")
	o.Host = host
	return o
}

// routeStory steers the weights of a route that is generated. How routes follow their members is
// tested in test/routing.
func (s *story) routeStory() {
	const host = "route.test"
	s.profile("shop", routed("shop", host))
	o := s.visitors(host)
	s.answers(o)
	asking := s.ask(o, usual)
	s.follows("traffic is brought together", s.group("shop", asking), s.uneven)
	if err := asking.Counts().NoFailures(); err != nil {
		s.Errorf("while plans changed: %v", err)
	}
}

// answers waits until requests are answered.
func (s *story) answers(o load.Options) {
	s.Helper()
	s.eventually(fmt.Sprintf("%s %s is served", o.URL, o.Host), func(ctx context.Context) error {
		counts, err := load.Burst(ctx, o, 20)
		if err != nil {
			return err
		}
		return counts.NoFailures()
	})
}
