package traffic

import (
	"context"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/dataplane/product"
)

// TestServiceFollowsThePlan steers a Service of six VMs on three nodes in two
// zones while a VM fails and comes back, the manager is killed, and a VM migrates.
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
	if *figures {
		t.Logf("figure traffic_split_error_points %.4g points", s.worst)
	}

	s.remove(profile)
	alike := map[string]float64{}
	for _, name := range s.names {
		alike[name] = 1 / float64(len(s.names))
	}
	s.eventually("all VMs get the same", splitIs(asking, alike))
}

// failReadiness makes a VM fail that has traffic: it is replaced, and comes back. The lever has
// been on for long enough by then that the manager's guard does not blame it.
func (s *story) failReadiness(group *product.Group, plan product.Plan) {
	s.Helper()
	const blamed = time.Minute
	if _, err := group.Load.Window(s.Context(), usual*int(blamed.Seconds())); err != nil {
		s.Fatal(err)
	}
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

// migrate moves a VM that has traffic to another node.
func (s *story) migrate(group *product.Group) {
	s.Helper()
	var plan product.Plan
	s.eventually("a plan is in force", func(ctx context.Context) (err error) {
		plan, err = group.Plan(ctx)
		return err
	})
	name, target := active(plan)[0], suite.Nodes[0]
	if suite.Fleet.Member(s.key(name)).Node == target {
		target = suite.Nodes[1]
	}
	if err := suite.Migrate(s.Context(), s.key(name), target); err != nil {
		s.Fatal(err)
	}
	s.follows(name+" migrated", group, s.uneven)
}
