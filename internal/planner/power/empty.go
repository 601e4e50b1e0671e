package power

import (
	"fmt"
	"slices"
	"strings"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

// Reasons for which a node is not empty.
const (
	ReasonNodeRole        = "NodeRole"
	ReasonPods            = "PodsOnNode"
	ReasonVMs             = "VMsOnNode"
	ReasonMigrationTarget = "MigrationTarget"
	ReasonAttached        = "VolumeAttached"
	ReasonLocalVolume     = "LocalVolume"
)

// Contents is what a node carries.
type Contents struct {
	Labels map[string]string
	// Pods that have not ended.
	Pods []Pod
	// VMs that run on the node, and those that are being migrated to it.
	VMs, Targets []string
	// Attachments are VolumeAttachments, and LocalVolumes the PersistentVolumes in use whose data
	// no other node has.
	Attachments, LocalVolumes []string
}

// Pod is a pod, and the kind of its controller.
type Pod struct {
	Name, Owner string
	// OfVM is true if the pod leaves the node with a VM.
	OfVM bool
}

// Lasts returns whether a reason keeps a host on also when its VMs have left the node: until somebody
// changes something.
func Lasts(reason string) bool {
	return slices.Contains([]string{
		ReasonNodeRole, ReasonPods, ReasonLocalVolume, v1alpha1.ReasonOptedOut, v1alpha1.ReasonNodeFrozen, v1alpha1.ReasonNoPolicy, v1alpha1.ReasonHostContested,
		v1alpha1.ReasonHostUnknown, v1alpha1.ReasonHostRefused, v1alpha1.ReasonHostRights, v1alpha1.ReasonHostUnreachable, v1alpha1.ReasonHealthCheck, v1alpha1.ReasonHostFailed,
	}, reason)
}

// roles are labels of nodes whose absence others would notice, whatever runs on them.
func roles() []string {
	const role = "node-role.kubernetes.io/"
	return []string{role + "control-plane", role + "master", role + "etcd", role + "storage", "cluster.ocs.openshift.io/openshift-storage"}
}

// Keeps returns what keeps a node from being empty. The zero value: it is empty. Pods of DaemonSets,
// and mirrors of static pods, which belong to the node, do not count. What lasts comes first.
func (c Contents) Keeps() model.Hold {
	var pods, ofVMs []string
	for _, pod := range c.Pods {
		switch {
		case pod.Owner == "DaemonSet" || pod.Owner == "Node":
		case pod.OfVM:
			ofVMs = append(ofVMs, pod.Name)
		default:
			pods = append(pods, pod.Name)
		}
	}
	found := []string{}
	for _, label := range roles() {
		if _, has := c.Labels[label]; has {
			found = append(found, label)
		}
	}
	for _, kept := range []struct {
		reason, what string
		names        []string
	}{
		{ReasonNodeRole, "the node has label", found},
		{ReasonPods, "the node runs pod", pods},
		{ReasonLocalVolume, "the node alone has the data of PersistentVolume", c.LocalVolumes},
		{ReasonVMs, "the node runs VM", c.VMs},
		{ReasonMigrationTarget, "the node is the target of migration", c.Targets},
		{ReasonVMs, "the node runs pod", ofVMs},
		{ReasonAttached, "the node has VolumeAttachment", c.Attachments},
	} {
		if len(kept.names) == 0 {
			continue
		}
		slices.Sort(kept.names)
		message := kept.what + " " + kept.names[0]
		if others := len(kept.names) - 1; others > 0 {
			message += fmt.Sprintf(" and %d more", others)
		}
		return model.Hold{Reason: kept.reason, Message: strings.TrimSpace(message)}
	}
	return model.Hold{}
}
