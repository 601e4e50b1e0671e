// Package figures reads fast figures of nodes and VMs from a Prometheus server that scrapes
// the product: what moves each second is not in the API.
package figures

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync"

	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/access"
)

// Ask sends one instant query to a server's API, and returns the answer's body.
type Ask func(ctx context.Context, query string) ([]byte, error)

// Node is what is known of a node now.
type Node struct {
	// Watts that it draws, by the named source. Nil: not known.
	Watts  *float64
	Source string
	// AgeSeconds of Watts.
	AgeSeconds *float64
	// BytesPerSecond of its VMs' traffic. Nil: not known.
	BytesPerSecond *float64
}

// VM is what is known of a VM now, on the node that runs it.
type VM struct {
	// Watts that are attributed to it.
	Watts          *float64
	BytesPerSecond *float64
}

// VMKey is a VM on a node: while it migrates, it is on two.
type VMKey struct {
	types.NamespacedName
	Node string
}

// Figures are all that were read.
type Figures struct {
	Nodes map[string]Node
	VMs   map[VMKey]VM
}

// The queries. Figures of nodes are from series that agents give with --per-vm-metrics=false
// too. Agents are scraped once, whatever else Prometheus adds to their labels.
const (
	nodeWatts = `max by (node, source) (joulevirt_node_power_watts)`
	nodeAge   = `max by (node) (joulevirt_node_power_age_seconds)`
	nodeBytes = `sum by (node) (max by (node, direction) (joulevirt_agent_vms_network_bytes_per_second))`
	vmWatts   = `max by (node, namespace, name) (joulevirt_vm_power_watts)`
	vmBytes   = `sum by (node, namespace, name) (joulevirt_vm_network_bytes_per_second)`
)

// OfNodes reads the figures of all nodes.
func OfNodes(ctx context.Context, ask Ask) (*Figures, error) {
	answers, err := all(ctx, ask, nodeWatts, nodeAge, nodeBytes)
	if err != nil {
		return nil, err
	}
	f := &Figures{Nodes: map[string]Node{}}
	for i, set := range []func(*Node, *model.Sample){
		func(n *Node, s *model.Sample) { n.Watts, n.Source = value(s), string(s.Metric["source"]) },
		func(n *Node, s *model.Sample) { n.AgeSeconds = value(s) },
		func(n *Node, s *model.Sample) { n.BytesPerSecond = value(s) },
	} {
		for _, sample := range answers[i] {
			name := string(sample.Metric["node"])
			node := f.Nodes[name]
			set(&node, sample)
			f.Nodes[name] = node
		}
	}
	return f, nil
}

// OfVMs reads the figures of all VMs.
func OfVMs(ctx context.Context, ask Ask) (*Figures, error) {
	answers, err := all(ctx, ask, vmWatts, vmBytes)
	if err != nil {
		return nil, err
	}
	f := &Figures{VMs: map[VMKey]VM{}}
	for i, set := range []func(*VM, *model.Sample){
		func(vm *VM, s *model.Sample) { vm.Watts = value(s) },
		func(vm *VM, s *model.Sample) { vm.BytesPerSecond = value(s) },
	} {
		for _, sample := range answers[i] {
			key := VMKey{types.NamespacedName{
				Namespace: string(sample.Metric["namespace"]), Name: string(sample.Metric["name"]),
			}, string(sample.Metric["node"])}
			vm := f.VMs[key]
			set(&vm, sample)
			f.VMs[key] = vm
		}
	}
	return f, nil
}

func value(sample *model.Sample) *float64 {
	v := float64(sample.Value)
	if v != v || v < 0 { // NaN, or what no power and no rate is
		return nil
	}
	return &v
}

// all asks several queries at once.
func all(ctx context.Context, ask Ask, queries ...string) ([]model.Vector, error) {
	answers, problems := make([]model.Vector, len(queries)), make([]error, len(queries))
	var wait sync.WaitGroup
	for i, query := range queries {
		wait.Go(func() {
			body, err := ask(ctx, query)
			if err == nil {
				answers[i], err = parse(body)
			}
			problems[i] = err
		})
	}
	wait.Wait()
	for _, err := range problems {
		if err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// parse reads the answer to an instant query.
func parse(body []byte) (model.Vector, error) {
	var answer struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   struct {
			Type   string          `json:"resultType"`
			Result json.RawMessage `json:"result"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("what answers is no Prometheus server: %w", err)
	}
	if answer.Status != "success" || answer.Data.Type != "vector" {
		return nil, fmt.Errorf("the Prometheus server refuses a query: %s", strings.TrimSpace(answer.Status+" "+answer.Error))
	}
	var vector model.Vector
	if err := json.Unmarshal(answer.Data.Result, &vector); err != nil {
		return nil, fmt.Errorf("read the answer of the Prometheus server: %w", err)
	}
	return vector, nil
}

// ServiceOf returns the Service of the first Prometheus server that policies name, which can
// be asked through the API server, and whether there is one.
func ServiceOf(policies []v1alpha1.EnergyPolicy) (access.Service, bool) {
	for i := range policies {
		for _, source := range policies[i].Spec.Energy.Sources {
			if source.Prometheus == nil {
				continue
			}
			if service, ok := serviceOf(source.Prometheus.URL); ok {
				return service, true
			}
		}
	}
	return access.Service{}, false
}

// serviceOf reads the address of a Service: NAME.NAMESPACE.svc, with what follows.
func serviceOf(address string) (access.Service, bool) {
	parsed, err := url.Parse(address)
	if err != nil {
		return access.Service{}, false
	}
	parts := strings.Split(parsed.Hostname(), ".")
	if len(parts) < 3 || parts[2] != "svc" || strings.Trim(parsed.Path, "/") != "" {
		return access.Service{}, false
	}
	service := access.Service{Name: parts[0], Namespace: parts[1], Port: parsed.Port(), TLS: parsed.Scheme == "https"}
	if service.Port == "" {
		service.Port = map[bool]string{true: "443", false: "80"}[service.TLS]
	}
	return service, true
}
