//go:build e2e

package traffic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/dataplane/load"
)

// TestTrafficFollowsThePlan steers the traffic of six VMs on two nodes in two zones, of a Service
// and then of a route. A Service with UDP ports is refused.
//
//e2e:alone it sends requests at a fixed rate
func TestTrafficFollowsThePlan(t *testing.T) {
	s := newStory(t, 6)
	s.part("UDP", (*story).udpStory)
	s.part("Service", (*story).serviceStory)
	s.part("Route", (*story).routeStory)
}

// serviceStory steers a Service while the manager is killed, a VM fails and comes back, and a VM
// migrates.
func (s *story) serviceStory() {
	url := s.service("web")
	o := asked(clients, url)
	s.learnPeak(o)
	asking := s.ask(o, usual)
	group := s.group("web", asking)
	profile := s.profile("web", v1alpha1.TrafficGroup{Kind: v1alpha1.GroupService, Name: "web"})

	s.follows("traffic is brought together", group, s.fewer)
	plan := s.managerDies(group)
	s.failReadiness(group, plan)
	if err := asking.Counts().NoFailures(); err != nil {
		s.Errorf("while plans changed and the manager was killed: %v", err)
	}
	s.migrate(group, o)
	if *figures {
		s.Logf("figure traffic_split_error_points %.4g points", s.worst)
	}

	s.remove(profile)
	alike := map[string]float64{}
	for _, name := range s.names {
		alike[name] = 1 / float64(len(s.names))
	}
	s.eventually("all VMs get the same", splitIs(group.load, alike))
}

// failReadiness makes a VM fail that has traffic: it is replaced, and comes back. The manager found
// the lever on when it started: its guard does not blame it.
func (s *story) failReadiness(group *group, plan plan) {
	s.Helper()
	failing := active(plan)[0]
	s.setReady(failing, false)
	s.follows(failing+" is not ready", group, without(failing))
	s.setReady(failing, true)
	s.follows(failing+" is back", group, s.uneven)
}

// managerDies stops the manager, and kills it when traffic was measured without it: the split stays
// as it was, and the manager that the kubelet starts next goes on with it.
func (s *story) managerDies(group *group) plan {
	s.Helper()
	var before plan
	var pid int
	s.eventually("the manager stops while a plan is in force", func(ctx context.Context) (err error) {
		if pid, err = managerProcess(); err != nil { // the kubelet restarts one that is too slow
			return err
		}
		s.signal(pid, syscall.SIGSTOP)
		var serving []string
		if before, err = group.plan(ctx); err == nil {
			serving, err = s.serving(ctx, group.profile.Name)
		}
		if err == nil && !slices.Equal(serving, active(before)) {
			err = fmt.Errorf("the Service has %v, the plan %v", serving, before.shares)
		}
		if err != nil {
			s.signal(pid, syscall.SIGCONT)
		}
		return err
	})
	left, err := group.load.Window(s.Context(), 2*samples)
	if err != nil {
		s.Fatal(err)
	}
	s.Logf("without a manager: %s", left)
	if off := left.Error(before.shares); off > points {
		s.Errorf("without a manager the split is %.1f points from the last plan %v: %s", off, before.shares, left)
	}
	leader := s.leader(s.Context())
	s.signal(pid, syscall.SIGKILL)
	s.eventually("the kubelet has restarted the manager, and it leads", func(ctx context.Context) error {
		if s.leader(ctx) == leader {
			return fmt.Errorf("the Lease is still that of %s", leader)
		}
		return nil
	})
	return s.follows("the next manager", group, s.uneven)
}

// leader is who has the managers' Lease.
func (s *story) leader(ctx context.Context) string {
	s.Helper()
	lease := &coordinationv1.Lease{}
	if err := suite.Client().Get(ctx, client.ObjectKey{Namespace: product, Name: "joulevirt-manager"}, lease); err != nil {
		s.Fatal(err)
	}
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}

// managerProcess is the process of the only manager.
func managerProcess() (pid int, err error) {
	for _, n := range suite.Nodes() {
		if pid, err = n.Process("/manager ", "--leader-elect"); err == nil {
			return pid, nil
		}
	}
	return 0, err
}

func (s *story) signal(pid int, signal syscall.Signal) {
	s.Helper()
	err := syscall.Kill(pid, signal)
	if signal == syscall.SIGKILL && errors.Is(err, syscall.ESRCH) {
		return // the kubelet ends a manager that does not answer its probes
	}
	if err != nil {
		s.Fatal(err)
	}
}

// migrate moves a VM that has traffic to the other node. The Service has the other VMs all along,
// and once the VM is there requests do not fail.
func (s *story) migrate(group *group, o load.Options) {
	s.Helper()
	var before plan
	s.eventually("a plan is in force", func(ctx context.Context) (err error) {
		before, err = group.plan(ctx)
		return err
	})
	name := active(before)[0]
	counts := group.load.Counts()
	watching, stop := context.WithCancel(s.Context())
	least := make(chan endpoints)
	go func() { least <- s.leastEndpoints(watching, group) }()
	_, err := suite.Migrate(s.Context(), s.key(name))
	stop()
	seen := <-least
	if err != nil {
		s.Fatal(err)
	}
	after := s.follows(name+" migrated", group, s.uneven)
	s.Logf("while %s migrated: %s", name, group.load.Counts().Since(counts))
	if others := min(len(before.shares), seen.planned, len(after.shares)) - 1; seen.serving < others {
		s.Errorf("the Service had %d VMs at times while %s migrated, want %d", seen.serving, name, others)
	}
	group.load.Stop() // requests of before may still wait for the VM where it was
	group.load = s.ask(o, usual)
	s.eventually("kube-proxy knows where "+name+" is, and no request fails", func(ctx context.Context) error {
		answers, err := group.load.Window(ctx, samples)
		if err != nil {
			return err
		}
		return answers.NoFailures()
	})
}

// endpoints are the least numbers of VMs that a Service had, and that a plan in force gave traffic.
type endpoints struct{ serving, planned int }

// leastEndpoints observes a group until ctx ends.
func (s *story) leastEndpoints(ctx context.Context, group *group) endpoints {
	least := endpoints{len(s.names), len(s.names)}
	for ctx.Err() == nil {
		if serving, err := s.serving(ctx, group.profile.Name); err == nil { // else the API server is slow
			least.serving = min(least.serving, len(serving))
		}
		if plan, err := group.plan(ctx); err == nil {
			least.planned = min(least.planned, len(plan.shares))
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return least
}
