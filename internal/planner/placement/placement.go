// Package placement decides which VMs are to move to which node: first so that none suffers,
// then so that the nodes draw less. All functions are pure.
package placement

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Requests are what pods request of a node, or what a node has for requests.
type Requests struct {
	CPU    units.Cores
	Memory units.Bytes
}

// Node is a node that a policy governs.
type Node struct {
	Name string
	// Domain that the node fails with: its zone, else its name.
	Domain, Zone string
	// CPUs is the number of logical CPUs, Cores that of physical cores.
	CPUs, Cores units.Cores
	// Speed is how much one CPU does in a second, against the other nodes: 1 where all are
	// alike. What takes a CPU of speed 2 half a second takes one of speed 1 a second.
	Speed float64
	// Mean and P95 are the mean and the 95th percentile of all CPU use on the node, and Awake
	// the mean number of physical cores kept from deep sleep, over 15 minutes.
	Mean, P95, Awake units.Cores
	// Allocatable is what pods may request, Requested what they do, those of VMs included.
	Allocatable, Requested Requests
	// Power is what the node's power is made of. Nil: not known, and no VM comes or goes to
	// save energy.
	Power *power.Coefficients
	// PowersDown is true if nothing but its VMs, and Problem.Off, keeps the node's host from being
	// powered off. It draws nothing then. The host of any other node stays on.
	PowersDown bool
	// Closed is the reason why nothing is moved to the node or away from it, such as that a
	// person drains it. Empty: it is open.
	Closed string
}

// VM is a running VM.
type VM struct {
	Namespace, Name string
	// Node that the VM runs on: a number in Problem.Nodes.
	Node int
	// Mean and P95 are the mean and the 95th percentile of its CPU use, that of its launcher
	// pod, over 15 minutes.
	Mean, P95 units.Cores
	// Ahead is the mean CPU use that is expected in each of the next hours, see Day. Nil: as
	// now.
	Ahead *[HoursAhead]units.Cores
	// WakeUps is how often its threads are switched in.
	WakeUps units.PerSecond
	// Requests of its launcher pod.
	Requests Requests
	// Suffers is the part of the time, from 0 to 1, that the VM lacks CPU time in spite of all
	// other levers, for long. 0: it does not suffer.
	Suffers float64
	// Stays is the reason why the VM is not moved, whatever happens. Empty: it may be.
	Stays string
	// StaysWhenWell is the reason why the VM is not moved to save energy, such as that its
	// owner did not agree to an address that changes. Empty: it may be.
	StaysWhenWell string
	// Group of VMs that are not to fail together. Empty: none.
	Group string
	// Cost of moving the VM.
	Cost Cost
}

// Cost of one live migration.
type Cost struct {
	// Bytes that are copied, and the time that it takes.
	Bytes units.Bytes
	Time  time.Duration
	// Joules that it takes on both nodes. Result has it; in a Problem it is 0.
	Joules units.Joules
	// BreaksConnections is true if the VM's address changes: its TCP connections end.
	BreaksConnections bool
}

// Limits bound what is decided.
type Limits struct {
	// MaxCPU is the part of a node's CPUs up to which a VM may come, by the predicted 95th
	// percentile; above SpreadCPU, VMs are moved away until it is MaxCPU.
	MaxCPU, SpreadCPU float64
	// MaxMemory is the part of a node's allocatable memory that may be requested.
	MaxMemory float64
	// LeastWatts is what a move must save, on average over those that are decided together:
	// more than 0, or moves that save nothing go on for ever.
	LeastWatts units.Watts
	// Payback is the time within which a move must save what it costs.
	Payback time.Duration
}

// DefaultLimits are those of a policy that sets none.
func DefaultLimits() Limits {
	return Limits{MaxCPU: 0.65, SpreadCPU: 0.75, MaxMemory: 0.9, LeastWatts: 0.5, Payback: 24 * time.Hour}
}

// Problem is what a placement is decided from.
type Problem struct {
	// Nodes and VMs in the order of their names, which decides ties.
	Nodes  []Node
	VMs    []VM
	Limits Limits
	// Fitter knows where Kubernetes and KubeVirt would run VMs, with each on its node. Nil:
	// everywhere.
	Fitter Fitter
	// Off bounds how many nodes with PowersDown are off at a time. Nil: all that have no VMs.
	Off *Off
}

// Off is what package planner/power keeps on, however many nodes are empty: a reserve, and a part of
// each zone.
type Off struct {
	// Reserve is how many nodes without VMs stay on.
	Reserve int
	// Zones is how many nodes of each zone may be off.
	Zones map[string]int
}

// Fitter predicts where Kubernetes and KubeVirt would run VMs: package fit has one.
type Fitter interface {
	// Fits returns why a VM's migration to a node would find no room there. Empty: it would.
	Fits(vm, node int) string
	// Move records that a VM is planned on a node from now on.
	Move(vm, node int)
	Clone() Fitter
}

// Move is one VM's move.
type Move struct {
	// VM, From and To are numbers in the problem.
	VM, From, To int
	Reason       string
	// Saves is the part of what all moves save that is due to this one, on average over now and the
	// hours ahead. It may be negative, for a VM that is moved because one suffers.
	Saves units.Watts
	Cost  Cost
}

// Result is what is decided.
type Result struct {
	// Moves in the order in which they are best made: those for VMs that suffer first, then
	// those that save most.
	Moves []Move
	// Stays is, for each VM of the problem, why it stays. Empty for one that moves.
	Stays []string
	// Before and After are what the nodes with a known power draw, on average over now and the hours
	// ahead.
	Before, After units.Watts
	// NodesBefore and NodesAfter are what each node of the problem carries.
	NodesBefore, NodesAfter []Carried
}

// Carried is what a node carries.
type Carried struct {
	VMs int
	// P95 is the part of its CPUs that is used at the 95th percentile.
	P95 float64
	// Watts that it draws, on average over now and the hours ahead. 0 if that is not known.
	Watts units.Watts
}

// Reasons for a move.
const (
	ReasonSuffers  = "VMSuffers"
	ReasonNodeHot  = "NodeHot"
	ReasonSavesNow = "SavesEnergy"
)

// Reasons for a VM to stay.
const (
	ReasonNoGain       = "NoBetterNode"
	ReasonMovedLately  = "MovedLately"
	ReasonCPUFull      = "NodeCPUFull"
	ReasonCPUFullAhead = "NodeCPUFullAhead"
	ReasonMemoryFull   = "NodeMemoryFull"
	ReasonCPURequested = "NodeCPURequested"
	ReasonDomains      = "FailureDomains"
	ReasonNodeLoss     = "NoRoomForNodeLoss"
	ReasonPowerUnknown = "PowerUnknown"
	ReasonPayback      = "TakesTooLongToPay"
)

// migrationCores is the CPU time that a live migration takes at each end: QEMU copies in one
// thread.
const migrationCores = 1.0

// mostDirty is the part of the network's rate from which on memory that is written is not
// copied fast enough: each round of the copy leaves that part for the next.
const mostDirty = 0.8

// Copy is what decides how long a live migration takes.
type Copy struct {
	Memory units.Bytes
	// Written is the rate in bytes/s at which the VM writes memory. Nil: it is not known.
	Written *float64
	// Network is the rate in bytes/s at which memory is copied. 0: it is not known.
	Network float64
	// Most is the time after which KubeVirt gives the migration up.
	Most time.Duration
}

// PredictCost returns what it takes to copy a VM's memory while it runs: rounds of memory, and of
// what is written meanwhile, are memory/(1 - written/network) bytes together. Where a rate is not
// known, it is the memory once, and all the time that KubeVirt gives. It returns false if the copy
// would not end in this time.
func PredictCost(c Copy) (Cost, bool) {
	if c.Written == nil || c.Network <= 0 {
		return Cost{Bytes: c.Memory, Time: c.Most}, true
	}
	if *c.Written >= mostDirty*c.Network {
		return Cost{}, false
	}
	bytes := float64(c.Memory) / (1 - *c.Written/c.Network)
	took := time.Duration(bytes / c.Network * float64(time.Second))
	return Cost{Bytes: units.Bytes(bytes), Time: took}, took <= c.Most
}

// Decide returns the moves of a problem. Equal problems give equal results.
func Decide(p Problem) Result {
	s := newState(&p)
	r := Result{Before: s.total(), NodesBefore: s.carried()}
	s.relieve()
	s = saveFrom(s)
	r.After, r.Moves, r.Stays, r.NodesAfter = s.total(), s.moves(), s.stays, s.carried()
	return r
}

// Fits returns what says why a VM of a problem may not come to a node now. Empty: it may.
func Fits(p Problem) func(vm, node int) string { return newState(&p).fits }

// Saved returns what moves save now by the nodes' models: what nodes would draw with VMs where they
// were, by their number, less what they draw. False: the power of one of these nodes is not known.
func Saved(p Problem, were map[int]int) (units.Watts, bool) {
	p.Fitter = nil
	s := newState(&p)
	s.hours = 0
	now := s.total()
	for v, node := range were {
		if p.Nodes[node].Power == nil || p.Nodes[s.at[v]].Power == nil {
			return 0, false
		}
		s.put(v, node)
	}
	return s.total() - now, true
}
