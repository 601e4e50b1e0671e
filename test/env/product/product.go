// Package product installs Joulevirt on real nodes as its manifests do, ends and starts its
// agents as administrators do, and reads what it reports.
package product

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/watch"
	"github.com/joulevirt/joulevirt/test/cluster/stack"
	"github.com/joulevirt/joulevirt/test/env/node"
)

const (
	// Namespace is where the manifests install the product.
	Namespace = stack.Namespace
	// agents is the name of their DaemonSet, and manager that of its Deployment.
	agents, manager = "joulevirt-agent", "joulevirt-manager"
	// timeout covers what a busy node does in some seconds.
	timeout = 10 * time.Minute
	// nowhere is a label that no node has.
	nowhere = "test.joulevirt.io/nowhere"
	// finalizer keeps the pod of an agent that ended until its exit code was read.
	finalizer = "test.joulevirt.io/exit-code"
)

// QuickArguments have the manager plan and look every few seconds. Shipped, it plans again
// for changed loads each minute.
func QuickArguments() []string {
	return []string{"--rates-interval=5s", "--replan-interval=5s", "--review-interval=20s", "--energy-interval=3s"}
}

// Install applies the manifests, has agents act at once, and gives the manager more arguments.
// The environment's client knows the product's kinds afterwards.
func Install(ctx context.Context, e *node.Environment, arguments ...string) error {
	err := errors.Join(v1alpha1.AddToScheme(e.Client().Scheme()), stack.Install(ctx, e.Cluster))
	if err == nil {
		err = ActAtOnce(ctx, e)
	}
	if err != nil {
		return err
	}
	var changes []map[string]string
	for _, argument := range arguments {
		changes = append(changes, map[string]string{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": argument})
	}
	if len(changes) == 0 {
		return nil
	}
	patch, err := json.Marshal(changes)
	if err != nil {
		return err
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: manager}}
	if err := e.Client().Patch(ctx, deployment, client.RawPatch(types.JSONPatchType, patch)); err != nil {
		return fmt.Errorf("give the manager more arguments: %w", err)
	}
	return nil
}

// ActAtOnce has agents act from their start on. Shipped, they change nothing for two minutes.
func ActAtOnce(ctx context.Context, e *node.Environment) error {
	return changeAgents(ctx, e, func(spec *corev1.PodSpec) {
		spec.Containers[0].Args = append(spec.Containers[0].Args, "--start-delay=0s")
	})
}

// Agent returns the pod of a node's agent, unless it is ending.
func Agent(ctx context.Context, c client.Reader, nodeName string) (*corev1.Pod, error) {
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(Namespace), client.MatchingLabels{"app.kubernetes.io/component": "agent"}); err != nil {
		return nil, err
	}
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName == nodeName && pods.Items[i].DeletionTimestamp == nil {
			return &pods.Items[i], nil
		}
	}
	return nil, fmt.Errorf("no agent on node %s", nodeName)
}

// AgentProcess returns the process of a node's agent as this machine sees it.
func AgentProcess(n *node.Node) (int, error) { return n.Process("/agent", "--node-name="+n.Name) }

// EndAgents ends all agents as their DaemonSet leaves their nodes, and returns the exit code of
// one node's. StartAgents starts the next ones.
func EndAgents(ctx context.Context, e *node.Environment, n *node.Node) (exitCode int32, err error) {
	pod, err := Agent(ctx, e.Client(), n.Name)
	if err != nil {
		return 0, err
	}
	set := func(change func(client.Object, string) bool) error {
		before := pod.DeepCopy()
		change(pod, finalizer)
		return e.Client().Patch(ctx, pod, client.MergeFrom(before))
	}
	if err := set(controllerutil.AddFinalizer); err != nil {
		return 0, err
	}
	err = changeAgents(ctx, e, func(spec *corev1.PodSpec) { spec.NodeSelector = map[string]string{nowhere: ""} })
	if err != nil {
		return 0, err
	}
	err = e.WaitFor(ctx, timeout, "the agent on node "+n.Name+" ends", func(ctx context.Context) error {
		if err := e.Client().Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		for _, s := range pod.Status.ContainerStatuses {
			if s.State.Terminated == nil {
				return fmt.Errorf("its container is %+v", s.State)
			}
			exitCode = s.State.Terminated.ExitCode
		}
		return nil
	})
	return exitCode, errors.Join(err, set(controllerutil.RemoveFinalizer))
}

// StartAgents has the agents run on all nodes again, with a pod that change may change first,
// and returns when that of a node runs.
func StartAgents(ctx context.Context, e *node.Environment, n *node.Node, change func(*corev1.PodSpec)) error {
	err := changeAgents(ctx, e, func(spec *corev1.PodSpec) {
		spec.NodeSelector = nil
		if change != nil {
			change(spec)
		}
	})
	if err != nil {
		return err
	}
	return e.WaitFor(ctx, timeout, "the agent on node "+n.Name+" runs", func(context.Context) error {
		_, err := AgentProcess(n)
		return err
	})
}

func changeAgents(ctx context.Context, e *node.Environment, change func(*corev1.PodSpec)) error {
	set := &appsv1.DaemonSet{}
	if err := e.Client().Get(ctx, client.ObjectKey{Namespace: Namespace, Name: agents}, set); err != nil {
		return err
	}
	before := set.DeepCopy()
	change(&set.Spec.Template.Spec)
	return e.Client().Patch(ctx, set, client.MergeFrom(before))
}

// Lease returns the managers', and the pod that holds it.
func Lease(ctx context.Context, c client.Reader) (coordinationv1.LeaseSpec, *corev1.Pod, error) {
	var lease coordinationv1.Lease
	if err := c.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: watch.ManagerLease}, &lease); err != nil {
		return lease.Spec, nil, err
	}
	// The host's name, which is the pod's, and an identity of the process.
	name, _, _ := strings.Cut(ptr.Deref(lease.Spec.HolderIdentity, ""), "_")
	pod := &corev1.Pod{}
	err := c.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: name}, pod)
	return lease.Spec, pod, err
}

// Plan returns a node's plan.
func Plan(ctx context.Context, c client.Reader, nodeName string) (*v1alpha1.NodePlan, error) {
	plan := &v1alpha1.NodePlan{}
	return plan, c.Get(ctx, client.ObjectKey{Name: nodeName}, plan)
}

// InForce returns a node's plan, and an error unless its agent reports that it is in force.
func InForce(ctx context.Context, c client.Reader, nodeName string) (*v1alpha1.NodePlan, error) {
	plan, err := Plan(ctx, c, nodeName)
	if err != nil {
		return plan, err
	}
	applied := meta.FindStatusCondition(plan.Status.Conditions, v1alpha1.ConditionApplied)
	if applied == nil || applied.Status != metav1.ConditionTrue || applied.ObservedGeneration != plan.Generation {
		return plan, fmt.Errorf("condition Applied of plan %d is %+v: %s: %s", plan.Generation, applied, plan.Spec.Reason, plan.Spec.Message)
	}
	return plan, nil
}

// ActsOn is satisfied when a node's plan is in force and acts on so many VMs.
func ActsOn(ctx context.Context, c client.Reader, nodeName string, vms int) error {
	plan, err := InForce(ctx, c, nodeName)
	if err == nil && int(plan.Status.VMsInForce) != vms {
		err = fmt.Errorf("%d VMs are in force, want %d: %s: %s: %+v", plan.Status.VMsInForce, vms, plan.Spec.Reason, plan.Spec.Message, plan.Spec.VMs)
	}
	return err
}

// InForceOn are the VMs on which a lever is in force by a plan's status, sorted.
func InForceOn(plan *v1alpha1.NodePlan, lever v1alpha1.Lever) []types.NamespacedName {
	var vms []types.NamespacedName
	for _, vm := range plan.Status.VMs {
		if vm.Lever == lever && vm.State == v1alpha1.LeverInForce {
			vms = append(vms, types.NamespacedName{Namespace: vm.Namespace, Name: vm.Name})
		}
	}
	slices.SortFunc(vms, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	return vms
}

// State is what there is of VMs and product, for people who look for the cause of a failure.
func State(ctx context.Context, e *node.Environment) string {
	var text strings.Builder
	for _, args := range [][]string{
		{"get", "pods,vmi", "--all-namespaces", "--output=wide"},
		{"get", "nodeplans", "--output=yaml"},
		{"logs", "--namespace=" + Namespace, "--selector=app.kubernetes.io/component=agent", "--prefix", "--tail=30"},
		{"logs", "--namespace=" + Namespace, "--selector=app.kubernetes.io/component=manager", "--prefix", "--tail=15"},
	} {
		out, err := e.RunKubectl(ctx, args...)
		fmt.Fprintf(&text, "kubectl %v: %v\n%s\n", args, err, out)
	}
	for _, n := range e.Nodes() {
		consoles := map[string][]string{}
		err := n.EachLogLine("*_virt-launcher-*", func(container string, at time.Time, line string) {
			if strings.HasSuffix(container, "/guest-console-log") {
				consoles[container] = append(consoles[container], at.Format(time.TimeOnly)+" "+line)
			}
		})
		fmt.Fprintf(&text, "consoles of guests of node %s: %v\n", n.Name, err)
		for _, container := range slices.Sorted(maps.Keys(consoles)) {
			lines := consoles[container]
			fmt.Fprintf(&text, "%s:\n  %s\n", container, strings.Join(lines[max(0, len(lines)-20):], "\n  "))
		}
	}
	return text.String()
}
