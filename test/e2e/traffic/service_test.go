package traffic

import (
	"context"
	"testing"

	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/dataplane/load"
	"github.com/joulevirt/joulevirt/test/dataplane/product"
)

// TestServiceFollowsThePlan steers a Service of six VMs on three nodes in two
// zones through everything that happens to them.
func TestServiceFollowsThePlan(t *testing.T) {
	s := newStory(t, 6)
	url := s.service("web", labels, len(s.names))
	o := suite.Clients(clients, url)
	s.learnPeak(o)
	asking := s.ask(o, usual)
	group := suite.Group(s.key("web"), asking)
	profile := s.profile("web", v1alpha1.TrafficGroup{Kind: v1alpha1.GroupService, Name: "web"})

	plan := s.follows("traffic is brought together", group, s.fewer)
	s.failReadiness(group, plan)
	s.managerDies(group)
	if err := asking.Counts().NoFailures(); err != nil {
		t.Errorf("while plans changed and the manager was killed: %v", err)
	}
	s.migrate(group)
	s.restartAndCrash(group)

	s.remove(profile)
	s.eventuallyAlike(asking)
}

// failReadiness makes a VM fail that has traffic: it is replaced, and comes back.
func (s *story) failReadiness(group *product.Group, plan product.Plan) {
	s.Helper()
	failing := active(plan)[0]
	s.setReady(failing, false)
	s.follows(failing+" is not ready", group, without(failing))
	s.setReady(failing, true)
	s.follows(failing+" is back", group, s.uneven)
}

// managerDies kills the manager: the split stays as it was, and the next manager
// goes on with it.
func (s *story) managerDies(group *product.Group) {
	s.Helper()
	before, err := group.Plan(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	suite.KillManager()
	left, err := group.Load.Window(s.Context(), 2000)
	if err != nil {
		s.Fatal(err)
	}
	s.Logf("without a manager: %s", left)
	if off := left.Error(before.Shares); off > points {
		s.Errorf("without a manager the split is %.1f points from the last plan %v: %s", off, before.Shares, left)
	}
	if err := suite.StartManager(s.Context()); err != nil {
		s.Fatal(err)
	}
	s.follows("the next manager", group, s.uneven)
}

// busy returns a VM that has traffic.
func (s *story) busy(group *product.Group) string {
	s.Helper()
	var plan product.Plan
	s.eventually("a plan is in force", func(ctx context.Context) (err error) {
		plan, err = group.Plan(ctx)
		return err
	})
	return active(plan)[0]
}

// migrate moves a VM that has traffic to another node.
func (s *story) migrate(group *product.Group) {
	s.Helper()
	name := s.busy(group)
	target := suite.Nodes[0]
	if suite.Fleet.Member(s.key(name)).Node == target {
		target = suite.Nodes[1]
	}
	if err := suite.Migrate(s.Context(), s.key(name), target); err != nil {
		s.Fatal(err)
	}
	s.follows(name+" migrated", group, s.uneven)
}

// restartAndCrash ends VMs that have traffic, and they come back.
func (s *story) restartAndCrash(group *product.Group) {
	s.Helper()
	name := s.busy(group)
	if err := suite.Restart(s.Context(), s.key(name)); err != nil {
		s.Fatal(err)
	}
	s.follows(name+" restarted", group, s.uneven)

	name = s.busy(group)
	var vmi kubevirtv1.VirtualMachineInstance
	if err := suite.Client().Get(s.Context(), s.key(name), &vmi); err != nil {
		s.Fatal(err)
	}
	suite.Fleet.Member(s.key(name)).Crash()
	s.follows(name+" crashed", group, without(name))
	if err := suite.WaitReplaced(s.Context(), &vmi); err != nil {
		s.Fatal(err)
	}
	s.follows(name+" is replaced", group, s.uneven)
}

// eventuallyAlike waits until all VMs get the same of new requests.
func (s *story) eventuallyAlike(asking *load.Load) {
	s.Helper()
	alike := map[string]float64{}
	for _, name := range s.names {
		alike[name] = 1 / float64(len(s.names))
	}
	s.eventually("all VMs get the same", splitIs(asking, alike))
}
