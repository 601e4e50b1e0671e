package handler

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
)

// sandboxes are the running launcher pods of real nodes.
type sandboxes struct {
	runtimes map[string]Runtime // by node name

	mu   sync.Mutex
	pods map[types.UID]*launcher // by pod UID
}

// launcher is one launcher pod of a real node.
type launcher struct {
	sandbox Sandbox
	node    string
	vmi     types.UID

	mu      sync.Mutex
	started bool
	ended   bool // QEMU is gone
	unwatch func()
}

func newSandboxes(runtimes map[string]Runtime) *sandboxes {
	return &sandboxes{runtimes: runtimes, pods: map[types.UID]*launcher{}}
}

func (s *sandboxes) real(node string) bool {
	_, ok := s.runtimes[node]
	return ok
}

func (s *sandboxes) pod(uid types.UID) *launcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods[uid]
}

// of returns the launcher of a VMI on a node; nil when none runs.
func (s *sandboxes) of(vmi types.UID, node string) *launcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pod := range s.pods {
		if pod.vmi == vmi && pod.node == node {
			return pod
		}
	}
	return nil
}

// start makes a pod's sandbox. One goroutine at a time calls it for a pod.
func (s *sandboxes) start(ctx context.Context, pod *corev1.Pod) (*launcher, error) {
	sandbox, err := s.runtimes[pod.Spec.NodeName].StartPod(ctx, pod)
	if err != nil {
		return nil, err
	}
	l := &launcher{
		sandbox: sandbox, node: pod.Spec.NodeName,
		vmi: types.UID(pod.Labels[kubevirtv1.CreatedByLabel]), unwatch: func() {},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods[pod.UID] = l
	return l, nil
}

// stop ends a pod and forgets it; without one it does nothing.
func (s *sandboxes) stop(ctx context.Context, uid types.UID) error {
	l := s.pod(uid)
	if l == nil {
		return nil
	}
	if err := l.stop(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, uid)
	return nil
}

func (s *sandboxes) stopAll(ctx context.Context) error {
	s.mu.Lock()
	var all []types.UID
	for uid := range s.pods {
		all = append(all, uid)
	}
	s.mu.Unlock()
	var errs []error
	for _, uid := range all {
		errs = append(errs, s.stop(ctx, uid))
	}
	return errors.Join(errs...)
}

// startDomain starts the VM once; crashed is called when its QEMU ends before
// the launcher is stopped.
func (l *launcher) startDomain(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance, crashed func()) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.started {
		return nil
	}
	if err := l.sandbox.StartDomain(ctx, vmi); err != nil {
		return err
	}
	unwatch, err := watchExit(l.sandbox.QEMUPID(), func() {
		l.mu.Lock()
		l.ended = true
		l.mu.Unlock()
		crashed()
	})
	if err != nil {
		return fmt.Errorf("watch QEMU: %w", err)
	}
	l.started, l.unwatch = true, unwatch
	return nil
}

func (l *launcher) crashed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

func (l *launcher) stop(ctx context.Context) error {
	l.mu.Lock()
	unwatch := l.unwatch
	l.mu.Unlock()
	unwatch()
	return l.sandbox.Stop(ctx)
}
