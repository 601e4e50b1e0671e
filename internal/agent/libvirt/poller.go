package libvirt

import (
	"context"
	"hash/fnv"
	"net"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
)

const (
	// Interval between two questions about the same VM.
	Interval = time.Minute
	// Timeout of one question, from the connection to the last byte.
	Timeout = 5 * time.Second
	// workers ask at the same time. A silent libvirt holds one for Timeout.
	workers = 4
)

// Dialer connects to a socket in a process's file system. host.Host is one.
type Dialer interface {
	DialUnix(ctx context.Context, process host.TaskID, path string) (net.Conn, error)
}

// Poller keeps the facts of the node's domains fresh.
type Poller struct {
	dialer Dialer
	clock  clock.Clock
	log    logr.Logger
	due    chan discover.VM

	mu   sync.Mutex
	asks map[host.TaskID]*ask
}

// ask is what is known about one VM.
type ask struct {
	next   time.Time
	busy   bool
	facts  *model.DomainFacts
	failed error
	seen   bool
}

// NewPoller returns a Poller that asks nothing before Run.
func NewPoller(dialer Dialer, c clock.Clock, log logr.Logger) *Poller {
	return &Poller{dialer: dialer, clock: c, log: log, due: make(chan discover.VM), asks: map[host.TaskID]*ask{}}
}

// Run asks until the context ends.
func (p *Poller) Run(ctx context.Context) error {
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case vm := <-p.due:
					p.ask(ctx, vm)
				}
			}
		})
	}
	group.Wait()
	return nil
}

// Offer tells the Poller which VMs there are. It hands those that are due to a
// free worker, never waits, and forgets VMs that are not among them.
func (p *Poller) Offer(vms []discover.VM) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	for _, a := range p.asks {
		a.seen = false
	}
	for _, vm := range vms {
		a, known := p.asks[vm.Process]
		if !known {
			a = &ask{next: now.Add(spread(vm.PodUID))}
			p.asks[vm.Process] = a
		}
		a.seen = true
		if a.busy || now.Before(a.next) {
			continue
		}
		select {
		case p.due <- vm:
			a.busy, a.next = true, now.Add(Interval)
		default: // all workers are busy: the next round offers it again
		}
	}
	for process, a := range p.asks {
		if !a.seen && !a.busy {
			delete(p.asks, process)
		}
	}
}

// spread delays the first question of a VM by up to ten seconds, so that an
// agent that starts on a full node does not ask all at once.
func spread(podUID string) time.Duration {
	h := fnv.New32a()
	h.Write([]byte(podUID)) // never fails
	return time.Duration(h.Sum32()%10_000) * time.Millisecond
}

func (p *Poller) ask(ctx context.Context, vm discover.VM) {
	limited, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	dial := func(ctx context.Context) (net.Conn, error) {
		return p.dialer.DialUnix(ctx, vm.Process, SocketPath)
	}
	facts, err := Read(limited, dial, vm.Namespace+"_"+vm.Name)
	p.mu.Lock()
	defer p.mu.Unlock()
	a, known := p.asks[vm.Process]
	if !known || ctx.Err() != nil {
		return
	}
	if err != nil && a.failed == nil {
		p.log.Info("libvirt does not answer: its facts are missing until it does",
			"namespace", vm.Namespace, "vmi", vm.Name, "reason", err.Error())
	}
	if facts != nil {
		facts.Time = p.clock.Now()
	}
	a.busy, a.facts, a.failed = false, facts, err
}

// Facts returns what is known of the domain of a process. Nil: nothing.
func (p *Poller) Facts(process host.TaskID) *model.DomainFacts {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a, known := p.asks[process]; known {
		return a.facts
	}
	return nil
}

// Health counts the VMs whose libvirt answered last time, and those whose did
// not.
func (p *Poller) Health() (answering, failing int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.asks {
		switch {
		case a.facts != nil:
			answering++
		case a.failed != nil:
			failing++
		}
	}
	return answering, failing
}
