package agent

import (
	"time"

	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
)

// machineInterval is how long what is known of the machine is taken for true:
// CPUs are seldom taken off line or given away, and all processes are looked at.
const machineInterval = time.Minute

// machine knows the node's topology, and who else decides about its CPUs.
type machine struct {
	host     host.Host
	clock    clock.PassiveClock
	topology model.Topology
	actors   []host.Actor
	at       time.Time
}

func newMachine(h host.Host, c clock.PassiveClock) (*machine, error) {
	topology, err := h.Topology()
	if err != nil {
		return nil, err
	}
	m := &machine{host: h, clock: c, topology: topology, at: c.Now()}
	m.lookAround()
	return m, nil
}

// now returns the topology and the actors, at most machineInterval old. A failure
// keeps the last ones: CPUs and processes come and go while they are read.
func (m *machine) now() (model.Topology, []host.Actor) {
	if now := m.clock.Now(); now.Sub(m.at) >= machineInterval {
		m.at = now
		if topology, err := m.host.Topology(); err == nil {
			m.topology = topology
		}
		m.lookAround()
	}
	return m.topology, m.actors
}

func (m *machine) lookAround() {
	if actors, err := m.host.Actors(); err == nil {
		m.actors = actors
	}
}
