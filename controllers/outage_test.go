package controllers_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/controllertest"
	"github.com/joulevirt/joulevirt/test/fleet"
)

// While etcd is full, plans stay as they are. What was to be written is when there is room again.
func TestEtcdThatIsFull(t *testing.T) {
	s := newScene(t, "full", 1)
	node := s.nodes[0]
	web, more := s.vms("web", 1, node), s.vms("more", 1, node)
	s.profile("web", "web")
	s.profile("more", "more")
	s.agent(node, v1alpha1.PowerRAPL, web...)
	const full = "database space exceeded"
	var refused atomic.Int64
	stopManager(t)
	manager, err := suite.startPaced(t.Context(), fleet.Fast(), funcr.New(func(_, args string) {
		if strings.Contains(args, full) && strings.Contains(args, "write NodePlan "+node) {
			refused.Add(1)
		}
	}, funcr.Options{}))
	s.must(err)
	suite.manager = manager
	defer restartManager(t)
	s.policy("enforce", v1alpha1.ModeEnforce, nil)
	before := s.plan(node, "web pinned", func(p *v1alpha1.NodePlan) bool { return pinned(p, web...) })

	s.must(suite.cluster.FillEtcd(t.Context(), true))
	defer func() { s.must(suite.cluster.FillEtcd(t.Context(), false)) }()
	s.eventually("etcd refuses writes", func(ctx context.Context) error {
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "full"}}
		if err := suite.client.Create(ctx, config); err == nil || !strings.Contains(err.Error(), full) {
			return fmt.Errorf("the write says: %w", err)
		}
		return nil
	})
	s.rates(node, web[0], more[0])
	s.eventually("the manager cannot write the plan", func(context.Context) error {
		if refused.Load() == 0 {
			return fmt.Errorf("nothing was refused")
		}
		return nil
	})
	plan := &v1alpha1.NodePlan{}
	s.must(suite.client.Get(t.Context(), types.NamespacedName{Name: node}, plan))
	if plan.Generation != before.Generation {
		t.Errorf("the plan changed: %+v", plan.Spec)
	}
	s.must(suite.cluster.FillEtcd(t.Context(), false))
	s.plan(node, "both pinned", func(p *v1alpha1.NodePlan) bool { return pinned(p, web[0], more[0]) })
}

// While the API server does not answer, the manager goes on. What it cannot write meanwhile it writes
// when the server is back.
func TestAPIServerThatIsAway(t *testing.T) {
	s := newScene(t, "away", 1)
	node := s.nodes[0]
	web, more := s.vms("web", 1, node), s.vms("more", 1, node)
	s.profile("web", "web")
	s.profile("more", "more")
	s.agent(node, v1alpha1.PowerNone, web...)
	meter := newMeterServer(t, node, &clockAhead{})
	s.policy("enforce", v1alpha1.ModeEnforce, meter.only)
	s.plan(node, "web pinned", func(p *v1alpha1.NodePlan) bool { return pinned(p, web...) && p.Spec.Apply })

	goOn := func() { s.must(suite.cluster.APIServer().Signal(syscall.SIGCONT)) }
	defer goOn()
	s.must(suite.cluster.APIServer().Signal(syscall.SIGSTOP))
	asked := meter.questions.Load()
	s.rates(node, web[0], more[0])
	const questions = 10
	s.eventually("the manager goes on", func(context.Context) error {
		if more := meter.questions.Load() - asked; more < questions {
			return fmt.Errorf("it asked the meter %d times", more)
		}
		return nil
	})
	goOn()
	s.plan(node, "both pinned", func(p *v1alpha1.NodePlan) bool { return pinned(p, web[0], more[0]) && p.Spec.Apply })
}

// planned is how many nodes a manager has planned, by its metrics.
func planned(t *testing.T, manager *fleet.Manager) string {
	t.Helper()
	for line := range strings.Lines(controllertest.Series(t, manager.Metrics(), []string{"joulevirt_nodes"})) {
		if strings.Contains(line, `state="planned"`) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// Two managers that both believe to lead plan alike, and the one that stays goes on.
func TestTwoManagers(t *testing.T) {
	s := newScene(t, "two", 1)
	node := s.nodes[0]
	vmis := s.vms("web", 2, node)
	profile := s.profile("web", "web")
	s.agent(node, v1alpha1.PowerRAPL, vmis...)
	s.policy("enforce", v1alpha1.ModeEnforce, nil)
	before := s.plan(node, "pinned", func(p *v1alpha1.NodePlan) bool { return pinned(p, vmis...) && p.Spec.Apply })
	first := suite.manager
	second, err := suite.startManager(t.Context())
	s.must(err)
	s.eventually("the second manager has planned as many nodes as the first", func(context.Context) error {
		if one, other := planned(t, first), planned(t, second); one == "" || one != other {
			return fmt.Errorf("%s and %s", one, other)
		}
		return nil
	})
	s.cordon(node, true)
	s.plan(node, "frozen", func(p *v1alpha1.NodePlan) bool { return p.Spec.Reason == v1alpha1.ReasonNodeFrozen })
	s.cordon(node, false)
	after := s.plan(node, "pinned as before", func(p *v1alpha1.NodePlan) bool {
		return p.Spec.Revision == before.Spec.Revision && p.Spec.Reason == before.Spec.Reason
	})
	stopManager(t)
	suite.manager = second
	s.must(suite.client.Delete(t.Context(), profile))
	last := s.plan(node, "no VM left", func(p *v1alpha1.NodePlan) bool { return len(p.Spec.VMs) == 0 })
	if after.Generation != before.Generation+2 || last.Generation != after.Generation+1 {
		t.Errorf("generations %d, %d, %d: want two writes with two managers, and one when one has gone", before.Generation, after.Generation, last.Generation)
	}
}
