package agent

import (
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
)

// programsInterval is between two looks at the programs of the node: each reads a file for each thread,
// of which a node may have ten thousands.
const programsInterval = 10 * time.Minute

// programs watches which programs run beside VMs.
type programs struct {
	host           host.Host
	clock          clock.PassiveClock
	log            logr.Logger
	looked, logged time.Time
	last           model.Programs
}

// now returns the programs as of ten minutes ago at most; none while they cannot be listed.
func (p *programs) now() model.Programs {
	now := p.clock.Now()
	if !p.looked.IsZero() && now.Sub(p.looked) < programsInterval {
		return p.last
	}
	var err error
	p.last, err = p.host.Programs()
	if p.looked = now; err != nil && now.Sub(p.logged) >= sleepLogInterval {
		p.log.Error(err, "which programs run is not known")
		p.logged = now
	}
	return p.last
}
