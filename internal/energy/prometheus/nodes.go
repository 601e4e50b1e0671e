package prometheus

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/prometheus/common/model"

	"github.com/joulevirt/joulevirt/internal/energy"
)

// instanceLabel is the address that was scraped. It tells the node only when
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
			all = append(all, i.lookUp(string(value))...)
		}
	}
	if !explicit {
		all = i.lookUp(string(labels[instanceLabel]))
	}
	all = slices.Clone(all)
	slices.Sort(all)
	return slices.Compact(all)
}

func (i *index) lookUp(value string) []string {
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

// owner returns the node that a series is of, and counts. A series that names
// several nodes makes all of them unusable.
func (f *found) owner(nodes *index, metric model.Metric) (node string, ok bool) {
	f.series++
	names := nodes.find(metric)
	switch len(names) {
	case 0:
		f.unmatched++
		if f.stray == nil || compare(metric, f.stray) < 0 {
			f.stray = metric
		}
		return "", false
	case 1:
		return names[0], true
	}
	for _, name := range names {
		f.refuse(name, energy.Refuse(energy.ReasonManySeries, "the labels of %s name several nodes, %s: make them agree",
			describe(metric), shorten(strings.Join(names, " and "))))
	}
	return "", false
}

// judgeBy turns series into the power of nodes: the meters of a node, told apart by
// their labels, make its power together. A series that cannot be read makes that
// of its node unknown.
func judgeBy[K comparable](matrix model.Matrix, nodes *index, meterOf func(model.Metric) K, read func(map[K][]series) (nodePower, *energy.Refusal)) found {
	all := newFound()
	perNode := map[string]map[K][]series{}
	for _, stream := range matrix {
		node, ok := all.owner(nodes, stream.Metric)
		if !ok {
			continue
		}
		s, refusal := fromMatrix(stream)
		if refusal != nil {
			all.refuse(node, refusal)
			continue
		}
		if perNode[node] == nil {
			perNode[node] = map[K][]series{}
		}
		meter := meterOf(stream.Metric)
		perNode[node][meter] = append(perNode[node][meter], s)
	}
	for node, meters := range perNode {
		if all.has(node) {
			continue
		}
		if reading, refusal := read(meters); refusal != nil {
			all.refuse(node, refusal)
		} else {
			all.Readings[node] = reading
		}
	}
	return all
}
