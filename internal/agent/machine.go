package agent

import (
	"time"

	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
)

// machineInterval is how old a topology may be: CPUs are seldom taken off line or given away.
const machineInterval = time.Minute

// machine caches the node's topology.
type machine struct {
	host     host.Host
	clock    clock.PassiveClock
	topology model.Topology
	at       time.Time
}

func newMachine(h host.Host, c clock.PassiveClock) (*machine, error) {
	topology, err := h.Topology()
	if err != nil {
		return nil, err
	}
	return &machine{host: h, clock: c, topology: topology, at: c.Now()}, nil
}

// now returns the topology, at most machineInterval old. A failure keeps the last one: CPUs
// come and go while they are read.
func (m *machine) now() model.Topology {
	if now := m.clock.Now(); now.Sub(m.at) >= machineInterval {
		m.at = now
		if topology, err := m.host.Topology(); err == nil {
			m.topology = topology
		}
	}
	return m.topology
}
