package agent

import (
	"time"

	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
)

// topologyInterval is how long a topology is taken for true: CPUs are seldom
// taken off line.
const topologyInterval = time.Minute

// shape knows the node's topology.
type shape struct {
	host     host.Host
	clock    clock.PassiveClock
	topology model.Topology
	at       time.Time
}

func newShape(h host.Host, c clock.PassiveClock) (*shape, error) {
	topology, err := h.Topology()
	if err != nil {
		return nil, err
	}
	return &shape{host: h, clock: c, topology: topology, at: c.Now()}, nil
}

// now returns the topology, at most topologyInterval old. A failure keeps the
// last one: CPUs come and go while it is read.
func (s *shape) now() model.Topology {
	if now := s.clock.Now(); now.Sub(s.at) >= topologyInterval {
		s.at = now
		if topology, err := s.host.Topology(); err == nil {
			s.topology = topology
		}
	}
	return s.topology
}
