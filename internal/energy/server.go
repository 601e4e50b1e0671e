package energy

import (
	"net/url"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// Server is what a policy says of a Prometheus server: where it is and what it
// is asked. It is comparable: policies that say the same share one server, which
// is asked once for all of them.
type Server struct {
	URL string
	// Query yields an instant vector of watts, one sample per node, with a label node.
	// Empty: Kepler's counters are asked for.
	Query string
	// Matchers are those of labels that Kepler's counters must have, as PromQL writes them
	// between braces. Empty: whatever the server has counts.
	Matchers string
	// Secret is the name of the Secret with the credentials. Empty: none are needed.
	Secret string
	// Timeout of everything that one answer takes.
	Timeout time.Duration
	// Freshness up to which readings are of use, see Setting.
	Freshness time.Duration
}

// String returns the server's address without what it may hold of secrets: a
// password, or a key in its query. It goes into statuses, logs and metrics.
func (s Server) String() string {
	parsed, err := url.Parse(s.URL)
	if err != nil {
		return "(not a URL)" // what it holds is not known, so it is not shown
	}
	shown := *parsed
	shown.RawQuery, shown.Fragment, shown.RawFragment = "", "", ""
	return shown.Redacted()
}

// Setting is one of the energy sources of a policy.
type Setting struct {
	Type v1alpha1.PowerSource
	// Freshness is the age at which a figure of the source is no longer used.
	Freshness time.Duration
	// Server is asked. Zero unless Type is Prometheus.
	Server Server
}

// Target is a server with the nodes that it is asked about.
type Target struct {
	Server Server
	Nodes  []Node
}
