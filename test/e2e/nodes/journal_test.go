//go:build e2e

package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/test/env/node"
	"github.com/joulevirt/joulevirt/test/env/product"
)

// journal is what a node's agent has on disk of its changes.
func (w *world) journal(n *node.Node) (*journal.Content, error) {
	agent, err := product.AgentProcess(n)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/var/lib/joulevirt/journal.json", agent))
	content := &journal.Content{}
	if errors.Is(err, fs.ErrNotExist) { // nothing was changed yet
		return content, nil
	}
	if err != nil {
		return nil, err
	}
	return content, json.Unmarshal(text, content)
}

// journalOfRunning returns an error when a node's journal has something of a pod that does
// not run there.
func (w *world) journalOfRunning(ctx context.Context, n *node.Node) error {
	var pods corev1.PodList
	if err := w.Client().List(ctx, &pods, client.InNamespace(shop)); err != nil {
		return err
	}
	running := map[string]bool{}
	for _, pod := range pods.Items {
		if pod.Spec.NodeName == n.Name && pod.Status.Phase == corev1.PodRunning {
			running[string(pod.UID)] = true
		}
	}
	content, err := w.journal(n)
	if err != nil {
		return err
	}
	for _, entry := range content.Slices {
		if !running[entry.PodUID] {
			return fmt.Errorf("the agent's journal on node %s has thread %+v of pod %s, which does not run there", n.Name, entry.Thread, entry.PodUID)
		}
	}
	return nil
}
