package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/internal/agent/watch"
	"github.com/joulevirt/joulevirt/test/cluster/stack"
	"github.com/joulevirt/joulevirt/test/internal/proc"
)

// leader returns who holds the managers' Lease.
func (f *fixture) leader(ctx context.Context) (string, error) {
	var lease coordinationv1.Lease
	err := f.client.Get(ctx, client.ObjectKey{Namespace: stack.Namespace, Name: watch.ManagerLease}, &lease)
	return ptr.Deref(lease.Spec.HolderIdentity, ""), err
}

// standby starts a second manager, and has the suite's own again at the end.
func (f *fixture) standby() *stack.Program {
	f.Helper()
	group := proc.NewGroup(f.TempDir())
	f.Cleanup(group.Stop)
	program := filepath.Join(world.Dir(), "programs", "manager")
	next, err := stack.RunManager(f.Context(), world.Cluster, group, program, "--rates-interval=5s", "--replan-interval=5s", "--review-interval=20s")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		world.Manager().Kill()
		if err := next.Signal(syscall.SIGTERM); err != nil {
			f.Error(err)
		}
		next.ExitCode() // it has released the Lease
		if err := world.StartManager(context.WithoutCancel(f.Context())); err != nil {
			f.Error(err)
		}
	})
	return next
}

// takeOver kills the manager, after which the standby leads. Pins stay meanwhile.
func (f *fixture) takeOver(m *machine) {
	f.Helper()
	first, err := f.leader(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	world.Manager().Kill()
	f.eventually("the standby leads", func(ctx context.Context) error {
		if err := m.pinned(ctx); err != nil {
			f.Errorf("while the leader changes: %v", err)
		}
		if now, err := f.leader(ctx); err != nil || now == "" || now == first {
			return fmt.Errorf("%q leads, %w", now, err)
		}
		return nil
	})
}
