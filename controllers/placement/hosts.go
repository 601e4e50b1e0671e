package placement

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/planner/placement"
	"github.com/joulevirt/joulevirt/internal/planner/power"
)

// powersDown returns whether the host of a node may be powered off once its VMs have left, by what the
// controller of hosts last reported.
func (f *facts) powersDown(node string) bool {
	if f.policy.Spec.HostPower == nil || f.policy.Spec.Mode != v1alpha1.ModeEnforce {
		return false
	}
	at := slices.IndexFunc(f.hosts, func(h v1alpha1.HostStatus) bool { return h.Node == node })
	if at < 0 {
		return false
	}
	h := &f.hosts[at]
	return h.State == v1alpha1.HostOff || h.State != v1alpha1.HostPoweringOn && !power.Lasts(h.Reason)
}

// boundHosts bounds how many hosts of the policy may be off at a time in each zone, by all nodes of the
// cluster: a third, less those of other nodes that are down, and not all of the policy's.
func (f *facts) boundHosts(nodes []corev1.Node) {
	f.off = nil
	if f.policy.Spec.HostPower == nil {
		return
	}
	zones, own := map[string]power.Zone{}, map[string]int{}
	for i := range nodes {
		node := &nodes[i]
		name := node.Labels[corev1.LabelTopologyZone]
		zone := zones[name]
		zone.Nodes++
		if !f.powersDown(node.Name) && !objects.IsNodeReady(node) {
			zone.Down++
		}
		zones[name] = zone
		if f.numberOf(node.Name) >= 0 {
			own[name]++
		}
	}
	f.off = &placement.Off{Reserve: int(*f.policy.Spec.HostPower.ReserveNodes), Zones: map[string]int{}}
	for name, zone := range zones {
		f.off.Zones[name] = min(zone.Room(), own[name]-1)
	}
}
