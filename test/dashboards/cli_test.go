package dashboards

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/internal/cli/figures"
)

// checkCLI: what kubectl joulevirt top and explain ask a Prometheus server for is there, of each
// node and of VMs.
func checkCLI(ctx context.Context, t *testing.T, s *scene) {
	t.Helper()
	deadline := time.Now().Add(settleTimeout)
	var lacks string
	await(deadline, func() bool { lacks = s.nodeLacks(ctx); return lacks == "" })
	if lacks != "" {
		t.Errorf("top nodes: %s", lacks)
	}
	await(deadline, func() bool { lacks = s.vmsLack(ctx); return lacks == "" })
	if lacks != "" {
		t.Errorf("top vms: %s", lacks)
	}
	await(deadline, func() bool { lacks = s.potentialLacks(ctx); return lacks == "" })
	if lacks != "" {
		t.Errorf("explain node: %s", lacks)
	}
}

// potentialLacks says of which node nothing could be saved. Empty: of none.
func (s *scene) potentialLacks(ctx context.Context) string {
	for _, name := range s.fleet.Nodes() {
		got, err := figures.OfOne(ctx, s.askServer, name, types.NamespacedName{})
		if err != nil || got.Node.Watts == nil || len(got.Potential) == 0 || got.Potential[0].LowWatts == nil || got.Potential[0].HighWatts == nil {
			return fmt.Sprintf("node %s has %+v (%v), want its watts, and those of a lever with an interval", name, got, err)
		}
	}
	return ""
}

// nodeLacks says what is not told of a node. Empty: nothing.
func (s *scene) nodeLacks(ctx context.Context) string {
	got, err := figures.OfNodes(ctx, s.askServer)
	if err != nil {
		return err.Error()
	}
	for _, name := range s.fleet.Nodes() {
		node := got.Nodes[name]
		if node.Watts == nil || *node.Watts <= 0 || node.Source == "" || node.AgeSeconds == nil || node.BytesPerSecond == nil || *node.BytesPerSecond <= 0 {
			return fmt.Sprintf("node %s has %+v, want watts by a source, their age, and bytes", name, node)
		}
	}
	return ""
}

// vmsLack says what is told of no VM. Empty: nothing.
func (s *scene) vmsLack(ctx context.Context) string {
	got, err := figures.OfVMs(ctx, s.askServer)
	if err != nil {
		return err.Error()
	}
	nodes := map[string]bool{}
	for key, vm := range got.VMs {
		if vm.Watts != nil && *vm.Watts > 0 && vm.BytesPerSecond != nil && *vm.BytesPerSecond > 0 && key.Namespace == namespace {
			nodes[key.Node] = true
		}
	}
	for _, name := range s.fleet.Nodes() {
		if !nodes[name] {
			return fmt.Sprintf("no VM of node %s has watts and bytes, of %d VMs", name, len(got.VMs))
		}
	}
	return ""
}

// askServer sends a query as kubectl joulevirt does.
func (s *scene) askServer(ctx context.Context, query string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.prometheus+"/api/v1/query?"+url.Values{"query": {query}}.Encode(), nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	return io.ReadAll(response.Body)
}
