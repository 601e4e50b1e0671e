//go:build e2e

package nodes

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/test/env/node"
)

const (
	// replyTimeout is when a client asks anew.
	replyTimeout = 400 * time.Millisecond
	// clientsOfPod ask each pod that may have the guest, and each rests after an answer: enough for
	// pool Network, and little work for an emulated guest.
	clientsOfPod = 3
	rest         = 50 * time.Millisecond
)

// clients ask the guest of web: an idle VM is of no pool of network VMs, and answers show
// how long it is away. They ask at each pod that may have it: when a Service and the VMI
// name the new one is KubeVirt's own matter.
type clients struct {
	mu      sync.Mutex
	last    time.Time
	longest time.Duration
}

// askPods asks until the test ends.
func askPods(t *testing.T, e *node.Environment) *clients {
	t.Helper()
	c := &clients{last: time.Now()}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	running.Go(func() {
		pods := map[string]context.CancelFunc{}
		for ctx.Err() == nil {
			found := webPods(ctx, e)
			for address, stop := range pods {
				if !found[address] {
					stop()
					delete(pods, address)
				}
			}
			for address := range found {
				if pods[address] == nil {
					podCtx, stop := context.WithCancel(ctx)
					pods[address] = stop
					for range clientsOfPod {
						running.Go(func() { c.ask(podCtx, address) })
					}
				}
			}
			wait(ctx, 200*time.Millisecond)
		}
		for _, stop := range pods {
			stop()
		}
	})
	return c
}

// webPods are the addresses of web's pods that run.
func webPods(ctx context.Context, e *node.Environment) map[string]bool {
	var pods corev1.PodList
	found := map[string]bool{}
	// An API server that does not answer shows elsewhere.
	_ = e.Client().List(ctx, &pods, client.InNamespace(web.Namespace), client.MatchingLabels{"app": web.Name})
	for _, pod := range pods.Items {
		if pod.Status.PodIP != "" && pod.Status.Phase == corev1.PodRunning {
			found[pod.Status.PodIP] = true
		}
	}
	return found
}

func (c *clients) ask(ctx context.Context, address string) {
	for ctx.Err() == nil {
		request, cancel := context.WithTimeout(ctx, replyTimeout)
		err := node.Answers(request, address)
		cancel()
		if err == nil {
			c.answered()
		}
		wait(ctx, rest)
	}
}

func (c *clients) answered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.longest = max(c.longest, now.Sub(c.last))
	c.last = now
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// restart begins a new measurement of the longest time without an answer.
func (c *clients) restart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.longest = 0
}

// gap is the longest time without an answer since restart, until now.
func (c *clients) gap() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(c.longest, time.Since(c.last))
}
