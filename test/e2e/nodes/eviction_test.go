//go:build e2e

package nodes

import (
	"context"
	"fmt"
	"strings"

	"github.com/prometheus/procfs"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mostMiB is what may be in use on a node: several times what the product, KubeVirt and three VMs
// hold. ballast is a file in memory that takes as much.
const (
	mostMiB = 3 << 10
	ballast = "/dev/shm/ballast"
)

// shortOfMemory has a kubelet evict pods, with a second of grace, while more than mostMiB are in
// use. A hard threshold would do the same, and be taken from what the node offers.
func (w *world) shortOfMemory() map[string]any {
	w.Helper()
	fs, err := procfs.NewDefaultFS()
	w.check(err)
	memory, err := fs.Meminfo()
	w.check(err)
	return map[string]any{
		"evictionSoft":                     map[string]string{"memory.available": fmt.Sprintf("%dKi", *memory.MemTotal-mostMiB<<10)},
		"evictionSoftGracePeriod":          map[string]string{"memory.available": "1s"},
		"evictionMaxPodGracePeriod":        1,
		"evictionPressureTransitionPeriod": "1s",
	}
}

// evict makes the first node short of memory until its kubelet has evicted the agent: web and bulk
// are of a priority that it may not evict. The next agent acts, and nothing is left of the first.
func (w *world) evict() {
	n := w.Nodes()[0]
	w.eventually("levers act on web and bulk", w.inForce(n, web, bulk))
	before, err := w.agentPod(w.Context(), n)
	w.check(err)
	_, err = n.Run(w.Context(), "/bin/dd", "if=/dev/zero", "of="+ballast, "bs=1M", fmt.Sprintf("count=%d", mostMiB))
	w.check(err)
	w.eventually("the agent's pod is gone", func(ctx context.Context) error {
		err := w.Client().Get(ctx, client.ObjectKeyFromObject(before), before)
		if err == nil {
			err = fmt.Errorf("its status is %+v", before.Status)
		}
		return client.IgnoreNotFound(err)
	})
	_, err = n.Run(w.Context(), "/bin/rm", ballast)
	w.check(err)
	evicted := w.kubectl("get", "events", "--all-namespaces", "--field-selector=reason=Evicted", "--sort-by=.metadata.creationTimestamp",
		`--output=jsonpath={range .items[*]}{.involvedObject.name} {end}`)
	if !strings.Contains(evicted, before.Name+" ") {
		w.Errorf("the kubelet evicted %q, and not pod %s", evicted, before.Name)
	}
	w.Logf("evicted: %s", evicted)
	w.eventually("the next agent acts on web and bulk", w.inForce(n, web, bulk))
	w.eventually("its journal is of pods that run", func(ctx context.Context) error { return w.journalOfRunning(ctx, n) })
	w.check(n.WaitSchedulable(w.Context()))
}
