package interference

import (
	"slices"

	"github.com/joulevirt/joulevirt/internal/model"
)

// Advice says in words what would help a VM. It is empty where nothing need be done.
func Advice(d model.Disturbance) string {
	switch {
	case d.Verdict == model.InterferenceCoRunner && d.Heavy:
		return "move the VM to another node, or the VMs that it shares the cores with: if this persists, a restart on the same node does not help"
	case d.Verdict == model.InterferenceCoRunner:
		return "where the policy allows levers Affinity and Slice, VMs are kept apart; requesting more CPU gives the VM more weight among others"
	case d.Verdict != model.InterferenceSelf:
		return ""
	}
	busy := slices.ContainsFunc(d.Evidence, func(e model.Evidence) bool { return e.Sign == model.SignOwnUse })
	if !busy {
		return "the VM's own threads wait for each other: let it run on more cores, or give it fewer vCPUs"
	}
	return "give the VM more vCPUs, with a network queue for each (networkInterfaceMultiqueue) and vhost-net on the node, or move its computing to another VM"
}
