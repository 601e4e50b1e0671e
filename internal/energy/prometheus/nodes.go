package prometheus

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/prometheus/common/model"

	"github.com/joulevirt/joulevirt/internal/energy"
)

// instanceLabel is the address that was scraped. It identifies the node only when
// nothing better does: behind a gateway it is the gateway's.
const instanceLabel = "instance"

// explicitLabels name the node by intent. exported_instance is the node's name
// that Kepler 0.9 puts into its label instance, moved aside by the server.
func explicitLabels() []model.LabelName {
	return []model.LabelName{"node", "node_name", "kubernetes_node", "exported_instance"}
}

func nodeLabels() []string {
	names := []string{}
	for _, label := range explicitLabels() {
		names = append(names, string(label))
	}
	return append(names, instanceLabel)
}

// index finds nodes by what labels say.
type index struct {
	names map[string]string
	// addresses give the nodes that have an address; several, when a cluster is
	// misconfigured.
	addresses map[string][]string
}

func newIndex(nodes []energy.Node) *index {
	i := &index{names: map[string]string{}, addresses: map[string][]string{}}
	for _, node := range nodes {
		i.names[node.Name] = node.Name
		for _, address := range node.Addresses {
			key := canonical(address)
			if key != "" && !slices.Contains(i.addresses[key], node.Name) {
				i.addresses[key] = append(i.addresses[key], node.Name)
			}
		}
	}
	return i
}

// find returns the nodes that the labels of a series name: none, one, or, when
// labels contradict each other, several. A label that names a node by intent
// and is not known counts: the series may be of another cluster, whose nodes
// have the same addresses.
func (i *index) find(labels model.Metric) []string {
	explicit := false
	var all []string
	for _, label := range explicitLabels() {
		if value := labels[label]; value != "" {
			explicit = true
			all = append(all, i.resolve(string(value))...)
		}
	}
	if !explicit {
		all = i.resolve(string(labels[instanceLabel]))
	}
	all = slices.Clone(all)
	slices.Sort(all)
	return slices.Compact(all)
}

func (i *index) resolve(value string) []string {
	if value == "" {
		return nil
	}
	for _, candidate := range []string{value, withoutPort(value)} {
		if name, ok := i.names[candidate]; ok {
			return []string{name}
		}
		if names := i.addresses[canonical(candidate)]; len(names) > 0 {
			return names
		}
	}
	return nil
}

func withoutPort(value string) string {
	if host, _, err := net.SplitHostPort(value); err == nil {
		return host
	}
	return strings.TrimSuffix(strings.TrimPrefix(value, "["), "]")
}

// canonical writes addresses one way: IPv6 has many.
func canonical(address string) string {
	if ip, err := netip.ParseAddr(address); err == nil {
		return ip.Unmap().String()
	}
	return address
}
