package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
)

// ErrNotInstalled is returned by the readiness check while a needed kind is
// missing.
var ErrNotInstalled = errors.New("needed kinds are not installed")

// Requirement is a kind that must be installed before the controllers start.
type Requirement struct {
	Kind schema.GroupVersionKind
	// Install says what to install when it is missing.
	Install string
}

// Gate starts the controllers once the kinds that they watch are installed. It
// waits rather than exits: tools that apply a whole cluster's manifests do it
// in any order, a program that exits is restarted with growing delays, and a
// manager that waits says in its log and readiness what is missing.
type Gate struct {
	Mapper   meta.RESTMapper
	Required []Requirement
	// Setup adds the controllers to the manager.
	Setup func(context.Context) error
	Clock clock.WithTicker
	Log   logr.Logger
	open  atomic.Bool
}

const (
	gateInterval = 2 * time.Second
	// gateReminder is how often the log says again what is missing.
	gateReminder = time.Minute
)

// NeedLeaderElection is false: replicas in reserve wait too, and are ready.
func (g *Gate) NeedLeaderElection() bool { return false }

// Check is the readiness check.
func (g *Gate) Check(*http.Request) error {
	if g.open.Load() {
		return nil
	}
	return ErrNotInstalled
}

// Start waits and then sets the controllers up. An error ends the manager.
func (g *Gate) Start(ctx context.Context) error {
	ticker := g.Clock.NewTicker(gateInterval)
	defer ticker.Stop()
	var said time.Time
	for {
		missing, err := g.missing()
		if err == nil && len(missing) == 0 {
			break
		}
		if now := g.Clock.Now(); now.Sub(said) >= gateReminder {
			said = now
			g.Log.Error(errors.Join(err, ErrNotInstalled), "waiting to start the controllers", "install", strings.Join(missing, "; "))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
	if err := g.Setup(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("set the controllers up: %w", err)
	}
	g.open.Store(true)
	return nil
}

func (g *Gate) missing() ([]string, error) {
	var missing []string
	for _, r := range g.Required {
		_, err := g.Mapper.RESTMapping(r.Kind.GroupKind(), r.Kind.Version)
		switch {
		case meta.IsNoMatchError(err):
			missing = append(missing, fmt.Sprintf("kind %s of %s is missing: %s", r.Kind.Kind, r.Kind.GroupVersion(), r.Install))
		case err != nil:
			return missing, fmt.Errorf("look for kind %s: %w", r.Kind, err)
		}
	}
	return missing, nil
}
