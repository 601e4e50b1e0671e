package model

import (
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Policy is what an admin allows on a node.
type Policy struct {
	Name string
	Mode v1alpha1.PolicyMode
	// Paused policies undo what they did, and do nothing.
	Paused        bool
	Levers        []v1alpha1.Lever
	AllowModelled bool
	// MaxCoreUtilization is the predicted use of a physical core, per sibling
	// CPU, above which no vCPU is placed on it: from 0 to 1.
	MaxCoreUtilization units.Cores
	// Reserved CPUs take no pins.
	Reserved units.CPUSet
	// Sharing says whose vCPUs may be bound to the siblings of one core.
	Sharing v1alpha1.SiblingSharing
	// RecommendationValidity is how long a recommendation stays as it is.
	RecommendationValidity time.Duration
	// Approvals are the revisions that may be applied in mode Recommend.
	Approvals []string
	// MaxNodesChanging is how many nodes may be changing at once.
	MaxNodesChanging int
}

// Allows reports whether the policy allows a lever.
func (p *Policy) Allows(lever v1alpha1.Lever) bool { return slices.Contains(p.Levers, lever) }

// VM is one launcher pod on the node whose VM a profile governs. During a live
// migration a VM has two, on two nodes.
type VM struct {
	PodUID, Namespace, Name string
	// Profile that governs the VM: a name in the VM's namespace.
	Profile string
	// Affinity is the profile's wish.
	Affinity v1alpha1.AffinityPreference
	// Pool that the VM counts to as its owner wishes.
	Pool v1alpha1.PoolPreference
	// TrafficClass of the profile.
	TrafficClass v1alpha1.TrafficClass
	// MaxDelay is how long Deferrable traffic may be held. 0: not at all.
	MaxDelay time.Duration
	// Ceiling is the most that the VM is to send. 0: no bound.
	Ceiling units.BitsPerSecond
	// LatencyBudget is what buffering may add to a round trip. 0: nothing.
	LatencyBudget time.Duration
	// OnPackets is the rate of packets from which they may be held (0: two in a window), and Services those
	// whose small packets are no flood.
	OnPackets units.PacketsPerSecond
	Services  []Service
	// DefendFloods is true when packets may be held during a flood, whatever the budget.
	DefendFloods bool
	// MaxDrops is the share of packets towards the VM that may be lost, from 0 to 1. Nil:
	// the profile does not say.
	MaxDrops *float64
	// KeepThroughput is the share of its own throughput without levers that the VM must
	// keep, from 0 to 1. 0: the profile does not say.
	KeepThroughput float64
	// Tuning is what was seen of the VM's packets with each window.
	Tuning Tuning
	// MaxSteal is the share of one CPU that a vCPU may wait for one: the profile's
	// service level, from 0 to 1.
	MaxSteal units.Cores
	// Disturbance is what keeps the VM from its network work, as far as it is known.
	Disturbance Disturbance
	// Dedicated is true when KubeVirt pins the VM itself.
	Dedicated bool
	// NamespaceSelected is true when the policy covers the VM's namespace.
	NamespaceSelected bool
	// OptOut is what the VM's owner keeps away from it.
	OptOut OptOut
}

// Defers reports whether the VM's traffic may be held.
func (v *VM) Defers() bool { return v.TrafficClass == v1alpha1.TrafficDeferrable && v.MaxDelay > 0 }

// Node is everything that the plan of one node depends on. It is never changed
// once made.
type Node struct {
	Name string
	// Review is true once in a while: what was decided before, and could be decided
	// otherwise, is looked at anew. Between, VMs that were left unbound, and pools and pins
	// in force, change only for what cannot stay, or the swings of load would move them.
	Review bool
	// Frozen is true when the node is cordoned or draining: what is done may go,
	// nothing may come or change.
	Frozen bool
	// Hold says why nothing new may be done on the node by the policy's times of changes.
	Hold Hold
	// NodesBusy is true when as many other nodes are changing as may be at once: nothing
	// new is done then.
	NodesBusy bool
	// OptOut is what the node's owner keeps away from all of its VMs.
	OptOut OptOut
	// Policy that governs the node.
	Policy Policy
	// Reported is true when the node's agent reported its topology.
	Reported bool
	// ReportUnreadable is true when the topology that was reported makes no
	// sense: Reported is then false.
	ReportUnreadable bool
	Topology         Topology
	// Slices is true when the node's kernel has slices of single threads.
	Slices bool
	// Buffering says why the node's agent can hold no packets, and Shaping why it cannot shape
	// what VMs send. Empty: it can.
	Buffering, Shaping string
	// Costs are what the node's dynamic power is made of, as far as it was learned.
	Costs PowerCosts
	// Power that the node draws, by the first of the policy's sources that knows.
	// Nil: none does, or its figure is not at hand.
	Power *Power
	// Metered is true when the node's power is measured, not modelled.
	Metered bool
	// MeterUnknown is true while it is too early to say that the node has no meter,
	// as after a change of leader, or when a figure is late. Metered is then false.
	MeterUnknown bool
	// MeterLost is true when no meter knows the node's power, and one did within a day:
	// nothing that needs one to prove itself starts.
	MeterLost bool
	// Rates are the agent's newest. Nil: none, or too old to plan with.
	Rates *NodeRates
	// RatesAwaited is true while there are no rates because the node's agent was not asked
	// yet, as after a change of leader.
	RatesAwaited bool
	// VMs in the order of their PodUID.
	VMs []VM
	// Proofs say how levers stand with experiments, at most one each. A lever without one
	// acts as the policy has it. ProofsAwaited is true while they are not known, as after a
	// change of leader: what is in force stays, with its schedules, and nothing is new.
	Proofs        []Proof
	ProofsAwaited bool
	// Withdrawn are the levers that the manager took because they hurt, as Plan has them.
	Withdrawn []Withdrawal
	// Current is the plan that the node has. Nil: none.
	Current *Plan
}

// Hold says why nothing new may be done now, though all is known. The zero value:
// nothing forbids it.
type Hold struct {
	Reason  string
	Message string
}

// OptOut names the levers that its owner keeps away from a VM, or from a node.
type OptOut struct {
	// All of them.
	All    bool
	Levers []v1alpha1.Lever
	// Unreadable is what the owner wrote, quoted, when it is no list of levers: All is
	// then true.
	Unreadable string
}

// Keeps reports whether a lever is kept away.
func (o OptOut) Keeps(lever v1alpha1.Lever) bool { return o.All || slices.Contains(o.Levers, lever) }
