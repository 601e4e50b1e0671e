package nodevm

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/agent/watch"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/nodevm/wire"
)

const (
	namespace = "joulevirt-system"
	nodeName  = "node1"
	// startTimeout includes a cold build of the control plane.
	startTimeout = 20 * time.Minute
	// followTimeout is several rounds of an agent, by the node's clock.
	followTimeout = 15 * time.Second
	pollInterval  = 100 * time.Millisecond
)

// scene is a real API server with one node, the node VM, whose agent runs in it.
type scene struct {
	*testing.T
	cluster *cluster.Cluster
	client  client.Client
	node    *Node
	name    types.NamespacedName
	podUID  types.UID
	args    []string
	// before is what was on the tap before there was an agent.
	before wire.Device
	// agentRuns is true while it should, planned while there is a plan; of all subtests.
	agentRuns, planned *bool
	// toolsRun is true while the guest's tools should.
	toolsRun *bool
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func newScene(t *testing.T) *scene {
	s := &scene{T: t, agentRuns: new(bool), planned: new(bool), toolsRun: new(bool)}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	s.start(ctx)
	s.must(s.cluster.AddNode(ctx, cluster.RealNode{Name: nodeName}))
	s.must(s.cluster.ApplyManifests(ctx, "../../config/default"))
	scheme, err := objects.NewScheme()
	s.must(err)
	s.client, err = client.New(s.cluster.RESTConfig(), client.Options{Scheme: scheme})
	s.must(err)
	s.seed(ctx)
	s.must(s.connect(ctx))
	s.must(s.node.Boot(ctx, wire.Boot{Namespace: s.name.Namespace, Name: s.name.Name, PodUID: string(s.podUID), MemoryMiB: guestMemoryMiB}))
	return s
}

const guestMemoryMiB = 256

// start starts the API server and the node, which do not need one another yet.
func (s *scene) start(ctx context.Context) {
	s.Helper()
	var both errgroup.Group
	both.Go(func() (err error) {
		s.cluster, err = cluster.Start(ctx, cluster.Options{
			Binaries: binaries.FromEnvironment(os.Getenv, os.Stderr), KubeVirt: cluster.KubeVirtAPI,
		})
		return err
	})
	both.Go(func() (err error) {
		s.node, err = Start(ctx, Options{
			Programs:      map[string]string{"agent": "cmd/agent"},
			GuestPrograms: map[string]string{"joulevirt-guest": "cmd/joulevirt-guest"},
			Restarted:     s.again,
			Log:           s.Logf,
		})
		return err
	})
	err := both.Wait()
	if s.cluster != nil {
		s.Cleanup(func() {
			if err := s.cluster.Stop(); err != nil {
				s.Error(err)
			}
		})
	}
	if s.node != nil {
		s.Cleanup(s.end)
	}
	s.must(err)
}

// seed writes a VMI and its launcher pod, and the manager's sign of life.
func (s *scene) seed(ctx context.Context) {
	s.Helper()
	names, err := s.cluster.SeedVMIs(ctx, cluster.Seed{Namespace: "shop", Prefix: "web", Count: 1, Nodes: []string{nodeName}})
	s.must(err)
	s.name = names[0]
	var vmi kubevirtv1.VirtualMachineInstance
	s.must(s.client.Get(ctx, s.name, &vmi))
	for pod := range vmi.Status.ActivePods {
		s.podUID = pod
	}
	renewed := metav1.NewMicroTime(time.Now().Add(time.Hour))
	s.must(s.client.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: watch.ManagerLease},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &renewed},
	}))
}

// connect lets the node reach the API server, and gives it the agent's account.
func (s *scene) connect(ctx context.Context) error {
	config, path, err := s.cluster.ServiceAccountConfig(ctx, namespace, "joulevirt-agent", nodeName)
	if err != nil {
		return err
	}
	address, err := url.Parse(config.Host)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(address.Port())
	if err != nil {
		return err
	}
	kubeconfig, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	s.args = []string{
		"--node-name=" + nodeName, "--namespace=" + namespace, "--kubeconfig=/tmp/kubeconfig", "--state-dir=/tmp/state",
		"--advertise-address=127.0.0.1", "--rates-bind-address=127.0.0.1:8443", "--health-probe-bind-address=",
	}
	return errors.Join(s.node.Call(ctx, "Node.Forward", port, &wire.None{}),
		s.node.Call(ctx, "Machine.WriteFile", wire.File{Path: "/tmp/kubeconfig", Content: string(kubeconfig)}, &wire.None{}))
}

// again makes a node that was booted anew what it was.
func (s *scene) again(ctx context.Context) error {
	err := s.connect(ctx)
	if err == nil && *s.agentRuns {
		err = s.launchAgent(ctx)
	}
	return err
}

// end ends the node, and shows what a failure may need.
func (s *scene) end() {
	if s.Failed() {
		for _, name := range []string{"agent"} {
			var output string
			if err := s.node.Call(context.Background(), "Machine.Output", name, &output); err == nil {
				s.Logf("%s said:\n%s", name, output)
			}
		}
	}
	if err := s.node.Stop(); err != nil {
		s.Error(err)
	}
}

func (s *scene) launchAgent(ctx context.Context) error {
	return s.node.Call(ctx, "Machine.Start", wire.Program{Name: "agent", Path: "/usr/bin/agent", Args: s.args}, &wire.None{})
}

func (s *scene) startAgent() {
	s.Helper()
	*s.agentRuns = true
	s.must(s.launchAgent(s.Context()))
}

func (s *scene) signalAgent(signal int) {
	s.Helper()
	*s.agentRuns = false
	s.must(s.node.Call(s.Context(), "Machine.Signal", wire.Signal{Name: "agent", Signal: signal, Wait: true}, &wire.None{}))
}

// hold has an agent run that holds packets with the window.
func (s *scene) hold() {
	s.Helper()
	if !*s.agentRuns {
		s.startAgent()
	}
	if !*s.planned {
		s.want(int32(window.Microseconds()))
	}
}

// release has the agent hold no more, and waits until the tap is as it was.
func (s *scene) release() {
	s.Helper()
	if *s.planned {
		s.unplan()
		s.untouched()
	}
}

// forget has no agent run, and nothing planned, on a node that is booted anew.
func (s *scene) forget() {
	s.Helper()
	*s.agentRuns, *s.toolsRun = false, false
	if *s.planned {
		s.unplan()
	}
}

func (s *scene) unplan() {
	s.Helper()
	*s.planned = false
	s.must(s.client.Delete(s.Context(), &v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}))
}

// eventually polls until there is no error, also when the node dies meanwhile.
func (s *scene) eventually(what string, ask func() error) {
	s.Helper()
	s.must(s.try(what, func() error { return s.poll(what, ask) }))
}

func (s *scene) poll(what string, ask func() error) error {
	deadline := time.Now().Add(s.node.by(followTimeout))
	for {
		err := ask()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: %w", what, err)
		}
		if err := wait(s.Context(), pollInterval); err != nil {
			return err
		}
	}
}

// want has the node's plan hold packets with a window, and waits until the agent says so.
func (s *scene) want(windowMicroseconds int32) {
	s.Helper()
	action := &v1alpha1.BufferingAction{
		WindowMicroseconds: ptr.To(windowMicroseconds), FloodWindowMicroseconds: ptr.To(int32(500)), OnPacketsPerSecond: onPackets,
	}
	var node corev1.Node
	s.must(s.client.Get(s.Context(), client.ObjectKey{Name: nodeName}, &node))
	manager, err := client.New(s.cluster.AsServiceAccount("joulevirt-system", "joulevirt-manager"), client.Options{Scheme: s.client.Scheme()})
	s.must(err)
	s.must(manager.Create(s.Context(), &v1alpha1.NodePlan{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Node", Name: nodeName, UID: node.UID,
		}}},
		Spec: v1alpha1.NodePlanSpec{
			Policy: "test", Mode: v1alpha1.ModeEnforce, Revision: "r1", Apply: true, Reason: v1alpha1.ReasonPlanned,
			VMs: []v1alpha1.VMPlan{{
				VMReference: v1alpha1.VMReference{Namespace: s.name.Namespace, Name: s.name.Name, PodUID: s.podUID}, Buffering: action,
			}},
		},
	}))
	*s.planned = true
	s.must(s.try("the plan", s.applied))
}

// applied waits until the agent says that the plan is in force.
func (s *scene) applied() error {
	return s.poll("the plan is applied", func() error {
		var plan v1alpha1.NodePlan
		if err := s.client.Get(s.Context(), client.ObjectKey{Name: nodeName}, &plan); err != nil {
			return err
		}
		condition := meta.FindStatusCondition(plan.Status.Conditions, v1alpha1.ConditionApplied)
		if condition == nil || condition.Status != metav1.ConditionTrue || plan.Status.VMsInForce != 1 {
			return fmt.Errorf("status %+v", plan.Status)
		}
		return nil
	})
}
