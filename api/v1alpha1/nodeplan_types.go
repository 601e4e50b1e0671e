package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VMPlan is what is to be done for one VM.
type VMPlan struct {
	VMReference `json:",inline"`
	// profile that governs the VM.
	// +optional
	Profile string `json:"profile,omitempty"`

	// pool that the VM counts to: Network VMs are not kept waiting by Compute VMs.
	// Absent: neither.
	// +optional
	Pool Pool `json:"pool,omitempty"`

	// affinity restricts the CPUs of the VM's threads. Absent: unrestricted.
	// +optional
	Affinity *AffinityAction `json:"affinity,omitempty"`
	// sliceMicroseconds is the scheduler slice of the VM's threads. Absent: the kernel's.
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=100000
	// +optional
	SliceMicroseconds *int32 `json:"sliceMicroseconds,omitempty"`
	// buffering holds packets of the VM's taps. Absent: never.
	// +optional
	Buffering *BufferingAction `json:"buffering,omitempty"`
	// shaping bounds what the VM sends. Absent: nothing is bounded or held.
	// +optional
	Shaping *ShapingAction `json:"shaping,omitempty"`

	// reasons say, per lever, why it acts or not.
	// +listType=map
	// +listMapKey=lever
	// +optional
	Reasons []LeverReason `json:"reasons,omitempty"`
}

// LeverReason says why a lever acts on a VM, or why not.
type LeverReason struct {
	// lever that the reason is about.
	Lever Lever `json:"lever"`
	// reason is a CamelCase word.
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// message has figures and names that belong to the reason. Absent: the reason says it all.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Message string `json:"message,omitempty"`
}

// TrialSchedule switches a lever off and on, so that what it saves shows: a trial of
// one that is not proven, or the hold-back of one that is. Time since 1970 is cut into slots,
// and slots into strata of oneIn; in each stratum one slot, drawn by the seed, is off. The
// agent follows it by its own clock.
type TrialSchedule struct {
	// lever that is switched: one that acts on nodes.
	// +kubebuilder:validation:XValidation:rule="self != 'TrafficShare'",message="lever must be Affinity, Slice, Buffering or Shaping"
	Lever Lever `json:"lever"`
	// seed of the draws: a hash of lever and node.
	Seed int64 `json:"seed"`
	// slotLength is the length of each slot.
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('1m') && duration(self) <= duration('1h')",message="slotLength must be a duration from 1m to 1h, such as 7m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	SlotLength metav1.Duration `json:"slotLength"`
	// oneIn is of how many slots one is off: 2 in a trial.
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=100
	OneIn int32 `json:"oneIn"`
}

// NodePlanSpec is the complete desired state of a node: what it does not name
// is undone.
type NodePlanSpec struct {
	// policy that governs the node.
	// +kubebuilder:validation:MinLength=1
	Policy string `json:"policy"`
	// mode of the policy when the plan was made.
	Mode PolicyMode `json:"mode"`
	// revision is a hash of what is to be done: equal plans have equal
	// revisions. It is what an approval names.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Revision string `json:"revision"`
	// apply is true when the agent is to act on the plan. When false the plan
	// is a recommendation, and the node is left or put back as it would be
	// without the product.
	Apply bool `json:"apply"`
	// recommendedAt is when a plan of mode Recommend was made.
	// +optional
	RecommendedAt *metav1.Time `json:"recommendedAt,omitempty"`
	// reason is a CamelCase word for the plan as a whole.
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// message says the reason in words.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
	// excludedCPUs took no pins when the plan was made, nor did their siblings: those
	// that the policy reserves and those that others have for themselves, in the kernel's
	// list form. Absent: none, or no emulator thread is bound.
	// +kubebuilder:validation:Pattern=`^(([0-9]+(-[0-9]+)?)(,[0-9]+(-[0-9]+)?)*)?$`
	// +kubebuilder:validation:MaxLength=32768
	// +optional
	ExcludedCPUs string `json:"excludedCPUs,omitempty"`
	// networkCPUs are the cores of pool Network, in the kernel's list form: all siblings of
	// one or more physical cores. Absent: the pools share cores.
	// +kubebuilder:validation:Pattern=`^([0-9]+(-[0-9]+)?)(,[0-9]+(-[0-9]+)?)*$`
	// +kubebuilder:validation:MaxLength=32768
	// +optional
	NetworkCPUs string `json:"networkCPUs,omitempty"`
	// computeCPUs are those of pool Compute, none of them of networkCPUs.
	// +kubebuilder:validation:Pattern=`^([0-9]+(-[0-9]+)?)(,[0-9]+(-[0-9]+)?)*$`
	// +kubebuilder:validation:MaxLength=32768
	// +optional
	ComputeCPUs string `json:"computeCPUs,omitempty"`
	// vms of the node that a profile governs, those left alone too: each podUID
	// once, or the agent refuses that VM's part of the plan.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +optional
	VMs []VMPlan `json:"vms,omitempty"`
	// changedAt is when something new was to be done: the first time since the agent had applied
	// all. By it budgets.maxNodesChanging counts nodes.
	// +optional
	ChangedAt *metav1.Time `json:"changedAt,omitempty"`
	// digest of all else that the manager wrote: by it the manager sees that somebody else
	// changed the plan, which it then makes anew.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Digest string `json:"digest,omitempty"`
	// trials switch levers off and on.
	// +listType=map
	// +listMapKey=lever
	// +kubebuilder:validation:MaxItems=5
	// +optional
	Trials []TrialSchedule `json:"trials,omitempty"`
	// withdrawn levers hurt VMs and do nothing for them until their time is over. Those that
	// did some hours ago are remembered: what hurts again is withdrawn for longer.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +optional
	Withdrawn []WithdrawnLever `json:"withdrawn,omitempty"`
}

// VMApplied is what was done for one VM.
type VMApplied struct {
	VMReference `json:",inline"`
	LeverReason `json:",inline"`
	// state of the lever.
	State LeverState `json:"state"`
	// buffering as read back from the kernel.
	// +optional
	Buffering *BufferingReadBack `json:"buffering,omitempty"`
	// vcpus as read back from the kernel.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	// +optional
	VCPUs []VCPUPin `json:"vcpus,omitempty"`
}

// NodePlanStatus is what the agent did.
type NodePlanStatus struct {
	// observedGeneration is the generation of the spec that this status is of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// vmsInForce is the number of VMs that some lever acts on.
	// +optional
	VMsInForce int32 `json:"vmsInForce"`
	// vms report what was done for each.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4096
	// +optional
	VMs []VMApplied `json:"vms,omitempty"`
	// conditions: Applied.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Conditions and reasons of a NodePlan and of its parts.
const (
	// ConditionApplied is True when the plan is in force as a whole.
	ConditionApplied = "Applied"

	// ReasonPlanned: the plan has actions.
	ReasonPlanned = "Planned"
	// ReasonNothingToDo: no action would help.
	ReasonNothingToDo = "NothingToDo"
	// ReasonTooManyVMs: the plan has actions for some VMs and no room for the others.
	ReasonTooManyVMs = "TooManyVMs"
	// ReasonNodeFrozen: the node is cordoned or draining: nothing new is done.
	ReasonNodeFrozen = "NodeFrozen"
	// ReasonNoReport: the node's agent has not reported its cores.
	ReasonNoReport = "NoReport"
	// ReasonReportUnreadable: the cores in the node's NodeReport make no sense.
	ReasonReportUnreadable = "ReportUnreadable"
	// ReasonNoRates: the agent's rates are missing or old: nothing new is done.
	ReasonNoRates = "NoRates"
	// ReasonObserveOnly: the policy only observes.
	ReasonObserveOnly = "ObserveOnly"
	// ReasonLeverNotAllowed: the policy does not allow the lever.
	ReasonLeverNotAllowed = "LeverNotAllowed"
	// ReasonNamespaceNotSelected: the policy does not cover the VM's namespace.
	ReasonNamespaceNotSelected = "NamespaceNotSelected"
	// ReasonNoMeter above: mode Enforce needs a meter, or allowModelled.
	// ReasonAwaitingMeter: no meter of the node gives a fresh figure, and it is too
	// early to say that there is none: nothing new is done.
	ReasonAwaitingMeter = "AwaitingMeter"
	// ReasonAwaitingTrial, used for policies too: the lever waits for its trial.
	// ReasonRejectedByTrial: its trial showed that it does not save there, or that it
	// hurts.
	ReasonRejectedByTrial = "RejectedByTrial"
	// ReasonTrialUndecided: its trial ended without a verdict. It is tried again.
	ReasonTrialUndecided = "TrialUndecided"
	// ReasonAwaitingProof: the manager has not read yet how the lever stands, as after a
	// change of leader: what is in force stays.
	ReasonAwaitingProof = "AwaitingProof"

	// ReasonPinned: each vCPU has a physical core of its own or shares one
	// without making it hot.
	ReasonPinned = "Pinned"
	// ReasonSharedPreferred: the profile wants the VM unrestricted.
	ReasonSharedPreferred = "SharedPreferred"
	// ReasonDedicatedCPUs: KubeVirt pins the VM itself.
	ReasonDedicatedCPUs = "DedicatedCPUs"
	// ReasonCoreWouldBeHot: a pin would overload a core.
	ReasonCoreWouldBeHot = "CoreWouldBeHot"
	// ReasonWouldWait: the VM's threads waited where they were bound, while other CPUs
	// idled, and there are no CPUs for them alone.
	ReasonWouldWait = "WouldWait"
	// ReasonNoAllowedCore: the container's cpuset has no whole physical core.
	ReasonNoAllowedCore = "NoAllowedCore"
	// ReasonNotRunning: the VM's threads were not found on the node.
	ReasonNotRunning = "NotRunning"
	// ReasonSeparated: the VM's threads run on a part of the node's cores.
	ReasonSeparated = "Separated"
	// ReasonNothingToSeparate: the node has no parts that VMs could be kept on, or no
	// VM of the other pool.
	ReasonNothingToSeparate = "NothingToSeparate"
	// ReasonNoSaving: no binding would save enough energy, or holding packets saves too little.
	ReasonNoSaving = "NoSaving"
	// ReasonSiblingsTaken: the cores that are left have vCPUs of VMs that the policy's
	// siblingSharing keeps apart.
	ReasonSiblingsTaken = "SiblingsTaken"

	// ReasonShortSlice: the VM's threads preempt others soon, and are soon preempted.
	ReasonShortSlice = "ShortSlice"
	// ReasonLongSlice: the VM's threads run long when they run.
	ReasonLongSlice = "LongSlice"
	// ReasonNoOtherPool: no VM of the other pool runs on the node.
	ReasonNoOtherPool = "NoOtherPool"
	// ReasonSlicesUnsupported: the node's kernel is older than Linux 6.12: affinity
	// alone keeps the pools apart.
	ReasonSlicesUnsupported = "SlicesUnsupported"

	// ReasonTakesTurns: the VM's traffic takes turns with that of others.
	ReasonTakesTurns = "TakesTurns"
	// ReasonCeiling: the VM sends at most the profile's ceiling.
	ReasonCeiling = "Ceiling"
	// ReasonNothingToShape: the profile has no ceiling and is not Deferrable.
	ReasonNothingToShape = "NothingToShape"
	// ReasonShapingUnsupported: the node, or the VM's network device, cannot shape what the VM sends.
	ReasonShapingUnsupported = "ShapingUnsupported"
	// ReasonCeilingTooLow: connections would time out below 256 kbit/s.
	ReasonCeilingTooLow = "CeilingTooLow"
	// ReasonSendsLittle: holding what the VM sends would save nothing.
	ReasonSendsLittle = "SendsLittle"
	// ReasonNoOtherSender: no other VM of the node takes turns.
	ReasonNoOtherSender = "NoOtherSender"
	// ReasonNoRoom: the VM would need a longer turn than the others leave.
	ReasonNoRoom = "NoRoom"

	// ReasonNoPolicy: no EnergyPolicy governs the VM's node.
	ReasonNoPolicy = "NoPolicy"
	// ReasonNoProfile: no VMNetworkProfile selects the VM.
	ReasonNoProfile = "NoProfile"
	// ReasonAwaitingPlan: the node's plan does not name the VM yet.
	ReasonAwaitingPlan = "AwaitingPlan"
	// ReasonAwaitingAgent: the node's agent has not acted on the plan yet.
	ReasonAwaitingAgent = "AwaitingAgent"

	// ReasonApplied: applied and read back.
	ReasonApplied = "Applied"
	// ReasonApplyFailed: the kernel refused, or reads back another value.
	ReasonApplyFailed = "ApplyFailed"
	// ReasonAwaitingApproval: the plan is a recommendation.
	ReasonAwaitingApproval = "AwaitingApproval"
	// ReasonContested: something else changed it back twice within an hour: left alone. The shares
	// of a group are left alone until the profile changes.
	ReasonContested = "Contested"
	// ReasonGuardTripped: the agent undid the lever because it hurt the VM.
	ReasonGuardTripped = "GuardTripped"
	// ReasonVMGone: the VM ended while the plan was applied.
	ReasonVMGone = "VMGone"
)

// NodePlan is what is to be done on a node. It has the node's name and goes
// with the node.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=nplan,categories={joulevirt}
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.spec.policy`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.spec.revision`
// +kubebuilder:printcolumn:name="Apply",type=boolean,JSONPath=`.spec.apply`
// +kubebuilder:printcolumn:name="In-Force",type=integer,JSONPath=`.status.vmsInForce`
// +kubebuilder:printcolumn:name="Applied",type=string,JSONPath=`.status.conditions[?(@.type=="Applied")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.spec.reason`
// +kubebuilder:printcolumn:name="Network-CPUs",type=string,priority=1,JSONPath=`.spec.networkCPUs`
// +kubebuilder:printcolumn:name="Compute-CPUs",type=string,priority=1,JSONPath=`.spec.computeCPUs`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodePlan struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the manager's.
	// +required
	Spec NodePlanSpec `json:"spec"`
	// status is the agent's.
	// +optional
	Status NodePlanStatus `json:"status,omitempty"`
}

// NodePlanList is a list of NodePlans.
// +kubebuilder:object:root=true
type NodePlanList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodePlan `json:"items"`
}
