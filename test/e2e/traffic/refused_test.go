package traffic

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/dataplane/product"
)

// TestServiceWithoutTheLabel is reported, and spreads its traffic as before.
func TestServiceWithoutTheLabel(t *testing.T) {
	s := newStory(t, 3)
	url := s.service("plain", map[string]string{"app": "web"}, len(s.names))
	asking := s.ask(suite.Clients(clients, url), usual)
	s.profile("plain", v1alpha1.TrafficGroup{Kind: v1alpha1.GroupService, Name: "plain"})
	s.refused(suite.Group(s.key("plain"), asking), v1alpha1.ReasonSelectorMismatch)
	s.eventuallyAlike(asking)
	s.allActive()
	if err := asking.Counts().NoFailures(); err != nil {
		t.Error(err)
	}
}

// TestAllMembersNotReady is reported, and the VMs serve as soon as they can.
func TestAllMembersNotReady(t *testing.T) {
	s := newStory(t, 3)
	url := s.service("unready", labels, len(s.names))
	group := suite.Group(s.key("unready"), s.ask(suite.Clients(clients, url), usual))
	s.profile("unready", v1alpha1.TrafficGroup{Kind: v1alpha1.GroupService, Name: "unready"})
	for _, name := range s.names {
		s.setReady(name, false)
	}
	s.refused(group, v1alpha1.ReasonNoReadyMembers)
	s.allActive()
	for _, name := range s.names {
		s.setReady(name, true)
	}
	before := group.Load.Counts()
	s.eventually("the VMs answer again", func(context.Context) error {
		since := group.Load.Counts().Since(before)
		for _, name := range s.names {
			if since.Answers[name] == 0 {
				return fmt.Errorf("%s does not answer: %s", name, since)
			}
		}
		return nil
	})
}

// refused waits until the group is not steered for a reason.
func (s *story) refused(group *product.Group, reason string) {
	s.Helper()
	s.eventually("the group is not steered for "+reason, func(ctx context.Context) error {
		status, err := group.Status(ctx)
		if err != nil {
			return err
		}
		if status.State == v1alpha1.LeverInForce || status.Reason != reason {
			return fmt.Errorf("%s %s: %s", status.State, status.Reason, status.Message)
		}
		return nil
	})
}

// allActive fails when a launcher pod is on standby.
func (s *story) allActive() {
	s.Helper()
	var pods corev1.PodList
	err := suite.Client().List(s.Context(), &pods, client.InNamespace(s.namespace), client.MatchingLabels{kubevirtv1.AppLabel: "virt-launcher"})
	if err != nil {
		s.Fatal(err)
	}
	for i := range pods.Items {
		if got := pods.Items[i].Labels[v1alpha1.LabelServing]; got != v1alpha1.ServingActive {
			s.Errorf("launcher pod %s is labelled %q", pods.Items[i].Name, got)
		}
	}
}
