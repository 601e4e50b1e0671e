package product

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/joulevirt/joulevirt/test/cluster/stack"
	"github.com/joulevirt/joulevirt/test/dataplane/world"
	"github.com/joulevirt/joulevirt/test/internal/proc"
)

// Product is the manager and the agents of a world.
type Product struct {
	Agents  *Agents
	Manager *stack.Program

	world   *world.World
	group   *proc.Group
	program string
}

// Start installs the product as its manifests do and starts agents and manager.
func Start(ctx context.Context, w *world.World) (*Product, error) {
	p := &Product{world: w, group: proc.NewGroupLogging(w.Dir(), w.LogDir())}
	if err := p.start(ctx); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

func (p *Product) start(ctx context.Context) error {
	if err := stack.Install(ctx, p.world.Cluster); err != nil {
		return fmt.Errorf("install the product: %w", err)
	}
	var err error
	if p.program, err = stack.Build(ctx, "manager", filepath.Join(p.world.Dir(), "programs")); err != nil {
		return err
	}
	if p.Agents, err = StartAgents(ctx, p.world); err != nil {
		return err
	}
	if err := p.Agents.ShareAuthority(ctx, p.world.Client(), stack.Namespace); err != nil {
		return err
	}
	return p.StartManager(ctx)
}

// StartManager starts the manager again after KillManager.
func (p *Product) StartManager(ctx context.Context) (err error) {
	p.Manager, err = stack.RunManager(ctx, p.world.Cluster, p.group, p.program,
		// Shipped, it looks each 15 s and moves a part of the traffic each 30 s.
		"--rates-interval=1s", "--replan-interval=1s", "--review-interval=10s", "--energy-interval=1s", "--traffic-interval=2s", "--status-delay=500ms")
	return err
}

// KillManager ends the manager as a crash would.
func (p *Product) KillManager() { p.Manager.Kill() }

// Stop ends manager and agents.
func (p *Product) Stop() error {
	p.group.Stop()
	if p.Agents == nil {
		return nil
	}
	return p.Agents.Stop()
}
