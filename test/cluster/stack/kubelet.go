package stack

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/internal/proc"
)

// kubeletInterval is how often a kubelet looks at its pods.
const kubeletInterval = 100 * time.Millisecond

// Kubelet stands in for scheduler and kubelet of the pods of the installed product: each
// runs as a process of this machine, with the arguments, the ServiceAccount and the
// capabilities of its pod, is ready when its probe is, and ends when its pod is deleted.
type Kubelet struct {
	cluster *cluster.Cluster
	node    string
	// programs is the folder of the built programs, state that of the agent.
	programs, state string

	group  *proc.Group
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu       sync.Mutex
	problems []error
}

// StartKubelet plays the kubelet of a Node, which exists, until Stop. Folder programs has
// the manager and the agent, see Build.
func StartKubelet(c *cluster.Cluster, node, programs string) *Kubelet {
	k := &Kubelet{
		cluster: c, node: node, programs: programs, state: filepath.Join(c.Dir(), "agent-state"),
		group: proc.NewGroup(c.Dir()),
	}
	ctx, cancel := context.WithCancel(context.Background())
	k.cancel = cancel
	k.tasks.Go(func() { k.run(ctx) })
	return k
}

// Stop ends all programs and returns what went wrong with pods.
func (k *Kubelet) Stop() error {
	k.cancel()
	k.group.Stop()
	k.tasks.Wait()
	return errors.Join(k.problems...)
}

func (k *Kubelet) run(ctx context.Context) {
	known := map[types.UID]bool{}
	ticker := time.NewTicker(kubeletInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		var pods corev1.PodList
		if err := k.cluster.Client().List(ctx, &pods, client.InNamespace(Namespace)); err != nil {
			continue // it is asked again
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if known[pod.UID] {
				continue
			}
			known[pod.UID] = true
			k.tasks.Go(func() { k.note(ctx, pod, k.live(ctx, pod)) })
		}
	}
}

// note keeps a problem, unless it is that everything ends.
func (k *Kubelet) note(ctx context.Context, pod *corev1.Pod, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.problems = append(k.problems, fmt.Errorf("pod %s: %w", pod.Name, err))
}

// live is a pod's life.
func (k *Kubelet) live(ctx context.Context, pod *corev1.Pod) error {
	if pod.Spec.NodeName == "" {
		binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: k.node}}
		if err := k.cluster.Client().SubResource("binding").Create(ctx, pod, binding); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	program, err := k.start(ctx, pod)
	if err != nil {
		return err
	}
	if program.Health == "" {
		return k.complete(ctx, pod, program)
	}
	if err := program.waitReady(ctx); err != nil {
		return err
	}
	if err := k.report(ctx, pod, corev1.PodRunning, corev1.ConditionTrue); err != nil {
		return client.IgnoreNotFound(err)
	}
	return k.end(ctx, pod, program)
}

// start starts a pod's program by what part of the product it is.
func (k *Kubelet) start(ctx context.Context, pod *corev1.Pod) (*Program, error) {
	manager := filepath.Join(k.programs, "manager")
	switch part := pod.Labels["app.kubernetes.io/component"]; part {
	case "manager":
		return startManager(ctx, k.cluster, k.group, &pod.Spec, []string{manager})
	case "agent":
		return startAgent(ctx, k.cluster, k.group, &pod.Spec, agentPlace{
			program: filepath.Join(k.programs, "agent"), node: k.node, stateDir: k.state,
			// It meets no VM, and agents of other tests may keep theirs in the one folder.
			more: []string{"--bpf-root="},
		})
	default:
		_, kubeconfig, err := k.cluster.ServiceAccountConfig(ctx, Namespace, pod.Spec.ServiceAccountName, "")
		if err != nil {
			return nil, err
		}
		args := append(arguments(&pod.Spec, map[string]string{"POD_NAMESPACE": Namespace}), "--kubeconfig="+kubeconfig)
		process, err := k.group.Start(part, manager, args...)
		return &Program{Process: process}, err
	}
}

// complete waits until the program of a Job's pod ends.
func (k *Kubelet) complete(ctx context.Context, pod *corev1.Pod, program *Program) error {
	phase := corev1.PodSucceeded
	if program.ExitCode() != 0 {
		phase = corev1.PodFailed
	}
	if err := k.report(ctx, pod, phase, corev1.ConditionFalse); err != nil {
		return client.IgnoreNotFound(err)
	}
	return k.end(ctx, pod, program)
}

func (k *Kubelet) report(ctx context.Context, pod *corev1.Pod, phase corev1.PodPhase, ready corev1.ConditionStatus) error {
	base := pod.DeepCopy()
	pod.Status.Phase, pod.Status.Conditions = phase, []corev1.PodCondition{
		{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Now()},
		{Type: corev1.ContainersReady, Status: ready, LastTransitionTime: metav1.Now()},
	}
	return k.cluster.Client().Status().Patch(ctx, pod, client.MergeFrom(base))
}

// end waits until the pod is deleted, and ends its program as the kubelet does.
func (k *Kubelet) end(ctx context.Context, pod *corev1.Pod, program *Program) error {
	ticker := time.NewTicker(kubeletInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		select {
		case <-program.Done():
			if program.Health != "" {
				return errors.New("its program ended by itself")
			}
		default:
		}
		var now corev1.Pod
		err := k.cluster.Client().Get(ctx, client.ObjectKeyFromObject(pod), &now)
		if client.IgnoreNotFound(err) != nil {
			continue // it is asked again
		}
		gone := err != nil || now.UID != pod.UID
		if !gone && now.DeletionTimestamp == nil {
			continue
		}
		if err := program.Signal(syscall.SIGTERM); err == nil {
			program.ExitCode()
		}
		if gone {
			return nil
		}
		return client.IgnoreNotFound(k.cluster.Client().Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID}))
	}
}
