package rates

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/model"
)

// Target is an agent to ask.
type Target struct {
	Node string
	// Address is the host:port that the agent reported.
	Address string
}

// Clients gives the HTTP client for each node's agent, which must accept no
// other node's. Package pki has one.
type Clients interface {
	For(node string) *http.Client
	Forget(node string)
}

// Options of a Puller. All are required.
type Options struct {
	Store   *Store
	Clients Clients
	// Targets lists the agents there are now.
	Targets func(context.Context) ([]Target, error)
	// Changed is called when a node's plan should be made anew. It may block
	// until the context ends.
	Changed func(ctx context.Context, node string)
	// News is called with the rates of each new round of a node. It may be called for
	// several nodes at once.
	News func(ctx context.Context, rates *model.NodeRates)
	// Interval between rounds, Timeout of one pull, Concurrency of a round.
	Interval, Timeout time.Duration
	Concurrency       int
	Clock             clock.WithTicker
	Log               logr.Logger
}

// maxDecoding is how many answers are decoded at once: more would be no faster, and each may
// cost as much memory as the bounds allow.
const maxDecoding = 4

// Puller asks all agents for their rates, again and again. It is a Runnable of
// the controller runtime.
type Puller struct {
	Options
	known    map[string]bool
	wake     chan struct{}
	decoding *semaphore.Weighted
	// bodies are buffers for answers. The garbage collector frees those that nobody uses.
	bodies sync.Pool
	// failing remembers whose failure was logged: once, not each round.
	mu      sync.Mutex
	failing map[string]bool
}

// NewPuller returns a Puller; nothing is asked before Start.
func NewPuller(options Options) *Puller {
	return &Puller{Options: options, known: map[string]bool{}, wake: make(chan struct{}, 1), decoding: semaphore.NewWeighted(maxDecoding), failing: map[string]bool{},
		bodies: sync.Pool{New: func() any { return &usualBody{} }}}
}

// Wake asks the agents that have no fresh rates at once, such as that of a new
// node. It never blocks.
func (p *Puller) Wake() {
	select {
	case p.wake <- struct{}{}:
	default: // A wake-up is pending already.
	}
}

// NeedLeaderElection makes only the leader ask: nobody else plans.
func (p *Puller) NeedLeaderElection() bool { return true }

// Start asks until the context ends.
func (p *Puller) Start(ctx context.Context) error {
	ticker := p.Clock.NewTicker(p.Interval)
	defer ticker.Stop()
	everyone := func(Target) bool { return true }
	missing := func(t Target) bool { return p.Store.Fresh(t.Node) == nil }
	for wanted := everyone; ; {
		if err := p.round(ctx, wanted); err != nil && ctx.Err() == nil {
			p.Log.Error(err, "no agent was asked for its rates in this round")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			wanted = everyone
		case <-p.wake:
			wanted = missing
		}
	}
}

// round asks the wanted agents once. An agent that does not answer affects no
// other: the error is about the list of agents only.
func (p *Puller) round(ctx context.Context, wanted func(Target) bool) error {
	targets, err := p.Targets(ctx)
	if err != nil {
		return fmt.Errorf("list agents: %w", err)
	}
	p.forgetOthers(targets)
	var round errgroup.Group
	round.SetLimit(p.Concurrency)
	for _, target := range targets {
		if !wanted(target) {
			continue
		}
		round.Go(func() error {
			p.one(ctx, target)
			return nil
		})
	}
	return round.Wait()
}

func (p *Puller) forgetOthers(targets []Target) {
	nodes := make(map[string]bool, len(targets))
	for _, target := range targets {
		nodes[target.Node] = true
	}
	for node := range p.known {
		if !nodes[node] {
			p.Clients.Forget(node)
			delete(p.failing, node)
		}
	}
	p.known = nodes
	p.Store.Retain(nodes)
}

func (p *Puller) one(ctx context.Context, target Target) {
	rates, err := p.pull(ctx, target)
	if ctx.Err() != nil {
		return
	}
	p.logChange(target, err)
	switch {
	case err != nil:
		p.Store.Failed(target.Node)
	case p.Store.Put(rates):
		p.News(ctx, rates)
	}
	if p.Store.TakeNotice(target.Node) {
		p.Changed(ctx, target.Node)
	}
}

func (p *Puller) logChange(target Target, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch failed := p.failing[target.Node]; {
	case err != nil && !failed:
		p.failing[target.Node] = true
		p.Log.Error(err, "rates not read: will retry each round", "node", target.Node)
	case err == nil && failed:
		delete(p.failing, target.Node)
		p.Log.Info("rates are read again", "node", target.Node)
	}
}

func (p *Puller) pull(ctx context.Context, target Target) (*model.NodeRates, error) {
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	where := url.URL{Scheme: "https", Host: target.Address, Path: "/v1/rates"}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, where.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("status.ratesAddress %.256q of NodeReport %s: %w", target.Address, target.Node, err)
	}
	answer, err := p.Clients.For(target.Node).Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask the agent of node %s: %w", target.Node, err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask the agent of node %s: %s", target.Node, answer.Status)
	}
	buffer := p.bodies.Get().(*usualBody)
	defer p.bodies.Put(buffer)
	body, err := readBody(answer.Body, buffer)
	if err != nil {
		return nil, fmt.Errorf("answer of the agent of node %s: %w", target.Node, err)
	}
	// Outside of it, agents that send slowly would keep others from being decoded.
	if err := p.decoding.Acquire(ctx, 1); err != nil {
		return nil, fmt.Errorf("wait for the answers of other agents: %w", err)
	}
	rates, err := decode(body, target.Node)
	p.decoding.Release(1)
	if err != nil {
		return nil, fmt.Errorf("answer of the agent of node %s: %w", target.Node, err)
	}
	return rates, nil
}

// usualBody is more than the answer of an agent with 300 VMs.
type usualBody [512 << 10]byte

// readBody reads into a buffer, or into a larger one when that is full.
func readBody(from io.Reader, into *usualBody) ([]byte, error) {
	n, err := io.ReadFull(from, into[:])
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return into[:n], nil
	}
	if err != nil {
		return nil, err
	}
	read, err := io.ReadAll(io.LimitReader(io.MultiReader(bytes.NewReader(into[:]), from), maxBody+1))
	if err == nil && len(read) > maxBody {
		err = fmt.Errorf("%w: longer than %d bytes", ErrInvalid, maxBody)
	}
	return read, err
}
