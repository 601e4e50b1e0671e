package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
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

// loseLease has a manager stand still while another takes its Lease: as when that
// expired, but at once, so that both lead for as long as the first one, when it goes on,
// takes to give up renewing.
func (f *fixture) loseLease(old *stack.Program) {
	f.Helper()
	first, err := f.leader(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	if err := old.Signal(syscall.SIGSTOP); err != nil {
		f.Fatal(err)
	}
	f.delete(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: stack.Namespace, Name: watch.ManagerLease}})
	f.eventually("the other manager leads", func(ctx context.Context) error {
		if now, err := f.leader(ctx); err != nil || now == "" || now == first {
			return fmt.Errorf("%q leads, %w", now, err)
		}
		return nil
	})
}

// seen is what was seen of the node while nothing was to change.
type seen struct {
	generations map[int64]bool
	shaped      bool
	err         error
}

// watchNode looks at plan and VM until the returned function is called.
func (f *fixture) watchNode(m *machine) (stop func() seen) {
	ctx, cancel := context.WithCancel(f.Context())
	saw := seen{generations: map[int64]bool{}}
	var done sync.WaitGroup
	done.Go(func() {
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		for {
			plan, err := f.plan(ctx)
			if ctx.Err() != nil {
				return
			}
			shaped, shapeErr := m.shaped()
			if err != nil || shapeErr != nil {
				saw.err = fmt.Errorf("look at the node: %w, %w", err, shapeErr)
			}
			saw.generations[plan.Generation] = true
			saw.shaped = saw.shaped || shaped
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() seen { cancel(); done.Wait(); return saw }
}

// TestTwoManagersBelieveToLead: a manager that stood still while another took the Lease
// goes on for the seconds in which it still believes to lead. What changed meanwhile stays
// as the other one wrote it.
func TestTwoManagersBelieveToLead(t *testing.T) {
	f := newFixture(t)
	web := f.startVM(f.newVM("web", 1))
	profile := newProfile(f.namespace, "web", map[string]string{"app": "web"})
	profile.Spec.Bandwidth = &v1alpha1.BandwidthLimits{Ceiling: ptr.To(resource.MustParse("50M"))}
	f.create(profile)
	policy := f.enforceLevers(v1alpha1.LeverShaping)
	shapedIs := func(want bool) func(context.Context) error {
		return func(context.Context) error {
			if is, err := web.shaped(); err != nil || is != want {
				return fmt.Errorf("the VM has a ceiling: %t, %w", is, err)
			}
			return nil
		}
	}
	pause := func(paused bool) {
		before := policy.DeepCopy()
		policy.Spec.Paused = paused
		if err := f.client.Patch(t.Context(), policy, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	f.eventually("the ceiling is there", shapedIs(true))
	f.standby()
	old := world.Manager()
	f.loseLease(old)
	if err := shapedIs(true)(t.Context()); err != nil {
		t.Errorf("while the leader changed: %v", err)
	}
	pause(true)
	f.eventually("the other manager's pause is in force", shapedIs(false))

	stop := f.watchNode(web)
	if err := old.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	begins := time.Now()
	f.eventually("the first manager finds that it does not lead", func(context.Context) error {
		select {
		case <-old.Done():
			return nil
		default:
			return errors.New("it goes on")
		}
	})
	saw := stop()
	t.Logf("two managers for %v, plans %v", time.Since(begins).Round(time.Millisecond), saw.generations)
	if saw.err != nil || saw.shaped || len(saw.generations) != 1 {
		t.Errorf("with two managers it was %+v: want one plan, and no ceiling", saw)
	}
	pause(false)
	f.eventually("the ceiling comes back", shapedIs(true))
}
