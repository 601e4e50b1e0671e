package prometheus

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"

	"github.com/joulevirt/joulevirt/internal/energy"
)

func cluster() []energy.Node {
	return []energy.Node{
		{Name: "node-a", Addresses: []string{"10.0.0.1", "fd00::1", "node-a.example.org"}},
		{Name: "node-b", Addresses: []string{"10.0.0.2"}},
		{Name: "node-c", Addresses: []string{"10.0.0.9", ""}},
		{Name: "node-d", Addresses: []string{"10.0.0.9", "10.0.0.9"}},
	}
}

func TestFind(t *testing.T) {
	tests := map[string]struct {
		labels model.Metric
		want   []string
	}{
		"nothing":                   {model.Metric{"job": "kepler"}, nil},
		"node":                      {model.Metric{"node": "node-a"}, []string{"node-a"}},
		"node_name":                 {model.Metric{"node_name": "node-b"}, []string{"node-b"}},
		"kubernetes_node":           {model.Metric{"kubernetes_node": "node-b"}, []string{"node-b"}},
		"exported_instance":         {model.Metric{"exported_instance": "node-b", "instance": "10.244.3.7:9102"}, []string{"node-b"}},
		"instance is a name":        {model.Metric{"instance": "node-a:9102"}, []string{"node-a"}},
		"instance has no port":      {model.Metric{"instance": "node-a"}, []string{"node-a"}},
		"instance is a host name":   {model.Metric{"instance": "node-a.example.org:9102"}, []string{"node-a"}},
		"instance is an address":    {model.Metric{"instance": "10.0.0.2:28282"}, []string{"node-b"}},
		"instance is IPv6":          {model.Metric{"instance": "[fd00::1]:28282"}, []string{"node-a"}},
		"IPv6 written otherwise":    {model.Metric{"instance": "[FD00:0:0:0::1]:28282"}, []string{"node-a"}},
		"IPv6 without port":         {model.Metric{"instance": "[fd00::1]"}, []string{"node-a"}},
		"IPv4 in IPv6":              {model.Metric{"instance": "[::ffff:10.0.0.2]:1"}, []string{"node-b"}},
		"an explicit address":       {model.Metric{"node": "10.0.0.1"}, []string{"node-a"}},
		"labels that agree":         {model.Metric{"node": "10.0.0.1", "node_name": "node-a"}, []string{"node-a"}},
		"one of two is known":       {model.Metric{"node": "node-a", "node_name": "ip-10-0-0-1"}, []string{"node-a"}},
		"labels that differ":        {model.Metric{"node": "node-a", "node_name": "node-b"}, []string{"node-a", "node-b"}},
		"behind a gateway":          {model.Metric{"node": "node-a", "instance": "10.0.0.2:9091"}, []string{"node-a"}},
		"of another cluster":        {model.Metric{"node": "node-z", "instance": "10.0.0.2:28282"}, nil},
		"an address of two":         {model.Metric{"instance": "10.0.0.9:28282"}, []string{"node-c", "node-d"}},
		"a pod's address":           {model.Metric{"instance": "10.244.0.12:28282"}, nil},
		"an empty label":            {model.Metric{"node": "", "instance": ""}, nil},
		"a label that is not asked": {model.Metric{"hostname": "node-a"}, nil},
	}
	nodes := newIndex(cluster())
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := nodes.find(test.labels)
			if len(got) == 0 && len(test.want) == 0 {
				return
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("nodes (-want +got):\n%s", diff)
			}
		})
	}
}
