package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TrafficClass says what a VM's traffic needs most.
// +kubebuilder:validation:Enum=Interactive;Throughput;Deferrable
type TrafficClass string

const (
	// TrafficInteractive traffic waits on each reply: delay costs most.
	TrafficInteractive TrafficClass = "Interactive"
	// TrafficThroughput traffic moves bytes: some delay costs nothing.
	TrafficThroughput TrafficClass = "Throughput"
	// TrafficDeferrable traffic may be held for seconds: backups, syncs.
	TrafficDeferrable TrafficClass = "Deferrable"
)

// AffinityPreference says how a VM's vCPUs may be bound to CPUs.
// +kubebuilder:validation:Enum=Auto;Shared;Separated;Pinned
type AffinityPreference string

const (
	// AffinityAuto leaves the choice to the planner.
	AffinityAuto AffinityPreference = "Auto"
	// AffinityShared leaves the VM's threads unrestricted.
	AffinityShared AffinityPreference = "Shared"
	// AffinitySeparated keeps the VM on a part of the node's cores.
	AffinitySeparated AffinityPreference = "Separated"
	// AffinityPinned gives each vCPU one physical core.
	AffinityPinned AffinityPreference = "Pinned"
)

// BandwidthLimits bound the traffic of one VM.
// +kubebuilder:validation:XValidation:rule="!has(self.floor) || !has(self.ceiling) || !isQuantity(string(self.floor)) || !isQuantity(string(self.ceiling)) || quantity(string(self.floor)).compareTo(quantity(string(self.ceiling))) <= 0",message="floor must not be above ceiling: lower bandwidth.floor or raise bandwidth.ceiling"
type BandwidthLimits struct {
	// floor is the rate in bit/s that a VM of a group keeps whatever is planned, for
	// example 50M.
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && !string(self).matches('[num]$') && sign(quantity(string(self))) >= 0 && quantity(string(self)).compareTo(quantity('1P')) <= 0",message="floor must be from 0 to 1P bit/s, such as 50M (a small m would mean thousandths)"
	// +optional
	Floor *resource.Quantity `json:"floor,omitempty"`

	// ceiling is the rate in bit/s above which no traffic is steered to a VM, for
	// example 1G. With lever Shaping a VM sends no more than that on each of its
	// uplinks, if it is 256k or more.
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && !string(self).matches('[num]$') && sign(quantity(string(self))) > 0 && quantity(string(self)).compareTo(quantity('1P')) <= 0",message="ceiling must be above 0 and at most 1P bit/s, such as 1G (a small m would mean thousandths): leave it out for no ceiling"
	// +optional
	Ceiling *resource.Quantity `json:"ceiling,omitempty"`
}

// PlacementConsent says whether a VM may be live-migrated by lever Placement.
// +kubebuilder:validation:Enum=Allow;Deny
type PlacementConsent string

const (
	// PlacementAllow lets the VM be moved, to save energy too, though its address may change.
	PlacementAllow PlacementConsent = "Allow"
	// PlacementDeny keeps the VM where it is.
	PlacementDeny PlacementConsent = "Deny"
)

// ServiceLevels are what the profile's VMs must keep: a lever that breaks one
// is withdrawn.
type ServiceLevels struct {
	// maxStealPercent is the share of time that a vCPU may wait for a CPU, in
	// percent of one CPU. About 1 is normal, from 5 on a VM is affected.
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 100",message="maxStealPercent must be from 1 to 100 percent of one CPU"
	// +kubebuilder:default=5
	// +optional
	MaxStealPercent int32 `json:"maxStealPercent,omitempty"`

	// maxDropsPerMillion is the share of packets towards the VM that its tap
	// may drop, in packets per million. Absent: not watched.
	// +kubebuilder:validation:XValidation:rule="self >= 0 && self <= 1000000",message="maxDropsPerMillion must be from 0 to 1000000 packets per million"
	// +optional
	MaxDropsPerMillion *int32 `json:"maxDropsPerMillion,omitempty"`

	// minThroughputPercent is the throughput that the VM must keep, in percent
	// of its own baseline without levers. Absent: not watched.
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 100",message="minThroughputPercent must be from 1 to 100 percent of the VM's own baseline"
	// +optional
	MinThroughputPercent *int32 `json:"minThroughputPercent,omitempty"`
}

// VMNetworkProfileSpec describes the network needs of some VMs.
// +kubebuilder:validation:XValidation:rule="!has(self.maxDelay) || self.trafficClass == 'Deferrable'",message="maxDelay is only for trafficClass Deferrable: remove maxDelay or set trafficClass to Deferrable"
// +kubebuilder:validation:XValidation:rule="self.trafficClass != 'Deferrable' || has(self.maxDelay)",message="trafficClass Deferrable needs maxDelay: set the longest time that traffic may be held, for example 30s"
type VMNetworkProfileSpec struct {
	// selector picks VirtualMachineInstances of the profile's namespace by
	// label. VMIs get their labels from the template of their VirtualMachine.
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",message="selector must not be empty: name at least one label of the VMs in matchLabels or matchExpressions"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || size(e.values) == 0))",message="selector.matchExpressions must each be In or NotIn with values, or Exists or DoesNotExist without"
	// +kubebuilder:validation:XValidation:rule="(!has(self.matchLabels) || size(self.matchLabels) <= 32) && (!has(self.matchExpressions) || size(self.matchExpressions) <= 16 && self.matchExpressions.all(e, !has(e.values) || size(e.values) <= 64))",message="selector must have at most 32 matchLabels and 16 matchExpressions of 64 values"
	// +required
	Selector metav1.LabelSelector `json:"selector"`

	// trafficClass says what the VMs' traffic needs most.
	// +kubebuilder:default=Interactive
	// +optional
	TrafficClass TrafficClass `json:"trafficClass,omitempty"`

	// pool that the VMs count to: Network when their packets must not wait for others' time slices,
	// Compute when what they compute matters more, Auto by what they do.
	// +kubebuilder:default=Auto
	// +optional
	Pool PoolPreference `json:"pool,omitempty"`

	// bandwidth bounds the traffic of each VM.
	// +optional
	Bandwidth *BandwidthLimits `json:"bandwidth,omitempty"`

	// latencyBudget is the delay that buffering may add to a round trip. 0
	// means that packets are never held.
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) <= duration('100ms')",message="latencyBudget must be a duration from 0s (never buffer) to 100ms, such as 500us"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:default="0s"
	// +optional
	LatencyBudget *metav1.Duration `json:"latencyBudget,omitempty"`

	// buffering says how packets may be held, in bunches, while they come fast.
	// +kubebuilder:default={}
	// +optional
	Buffering BufferingPreferences `json:"buffering,omitempty"`

	// maxDelay is the longest time that Deferrable traffic may be held in all. A
	// single hold lasts seconds, and half of maxDelay at most.
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="maxDelay must be a duration from 1s to 1h, such as 30s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +optional
	MaxDelay *metav1.Duration `json:"maxDelay,omitempty"`

	// group declares the VMs interchangeable behind one Service or route.
	// +optional
	Group *TrafficGroup `json:"group,omitempty"`

	// affinity says how the VMs' vCPUs may be bound to CPUs.
	// +kubebuilder:default=Auto
	// +optional
	Affinity AffinityPreference `json:"affinity,omitempty"`

	// placement says whether the VMs may be live-migrated by lever Placement. A VM whose
	// pod network is masquerade gets another address, so that its TCP connections end.
	// Absent: such a VM is moved only when it, or one beside it, suffers.
	// +optional
	Placement PlacementConsent `json:"placement,omitempty"`

	// serviceLevels are what the VMs must keep.
	// +kubebuilder:default={}
	// +optional
	ServiceLevels ServiceLevels `json:"serviceLevels,omitempty"`
}

// LeverCount counts the VMs for which a lever is in one state for one reason.
type LeverCount struct {
	// lever that is counted.
	Lever Lever `json:"lever"`
	// state that the lever is in for these VMs.
	State LeverState `json:"state"`
	// reason is a CamelCase word, the same as in the node's plan.
	Reason string `json:"reason"`
	// count of VMs.
	Count int32 `json:"count"`
}

// VMExample is one VM of the profile and what a lever does for it, with the reason of the node's plan.
type VMExample struct {
	// name of the VirtualMachineInstance.
	Name string `json:"name"`
	// node that runs it.
	// +optional
	Node        string `json:"node,omitempty"`
	LeverReason `json:",inline"`
	// state that the lever is in for the VM.
	State LeverState `json:"state"`
}

// Cause is what keeps a VM from its network work.
type Cause string

const (
	// CauseUnknown: the VM was not observed for long enough.
	CauseUnknown Cause = ""
	// CauseStable: nothing does.
	CauseStable Cause = "Stable"
	// CauseOwnLimit: the CPU limit of its pod does.
	CauseOwnLimit Cause = "OwnLimit"
	// CauseOwnWeight: VMs that have more weight for each vCPU run in its place.
	CauseOwnWeight Cause = "OwnWeight"
	// CauseNeighbour: other work on the same cores does.
	CauseNeighbour Cause = "Neighbour"
	// CauseOwnWork: the VM's own computing does.
	CauseOwnWork Cause = "OwnWork"
	// CauseFlood: a flood of small packets does.
	CauseFlood Cause = "Flood"
)

// Causes that are told by how a VM waits, the first that holds.
func Causes() []Cause { return []Cause{CauseOwnLimit, CauseOwnWeight, CauseNeighbour, CauseOwnWork} }

// Disturbs reports whether a VM that was judged so is kept from its network work.
func (c Cause) Disturbs() bool { return c != CauseUnknown && c != CauseStable }

// DisturbedVM is a VM that is kept from its network work.
type DisturbedVM struct {
	// name of the VirtualMachineInstance.
	Name string `json:"name"`
	// node that runs it.
	Node string `json:"node"`
	// reason is OwnLimit for the CPU limit of the VM's pod, OwnWeight for VMs that have more weight,
	// Neighbour for other work on the same cores, OwnWork for the VM's own computing, and Flood for
	// a flood of small packets.
	// +kubebuilder:validation:Enum=OwnLimit;OwnWeight;Neighbour;OwnWork;Flood
	Reason Cause `json:"reason"`
	// since when.
	Since metav1.Time `json:"since"`
	// lostCores is the CPU time that the VM wanted and did not get, in CPU-seconds each second, as of
	// the last change of the message.
	// +optional
	LostCores Decimal `json:"lostCores,omitempty"`
	// message names the evidence, and what would help.
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message"`
}

// VMNetworkProfileStatus is what became of the profile.
type VMNetworkProfileStatus struct {
	// observedGeneration is the generation of the spec that this status is of, -1 until
	// there is one.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// governedVMs is the number of running VMs that the selector picks and no older profile has.
	// +optional
	GovernedVMs int32 `json:"governedVMs"`

	// vmsInForce is the number of governed VMs that some lever acts on.
	// +optional
	VMsInForce int32 `json:"vmsInForce"`

	// levers counts VMs by lever, state and reason.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Levers []LeverCount `json:"levers,omitempty"`

	// examples are some of the VMs, at most 50, those with trouble first.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	// +optional
	Examples []VMExample `json:"examples,omitempty"`

	// disturbedVMs are some of the VMs that are kept from their network work: at most 20 by other
	// work or their own, and at most 20 by floods, the longest disturbed first.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=40
	// +optional
	DisturbedVMs []DisturbedVM `json:"disturbedVMs,omitempty"`

	// traffic reports what became of the group. Absent: the profile has none.
	// +optional
	Traffic *TrafficStatus `json:"traffic,omitempty"`

	// conditions: Ready, Overlapping, Disturbed, UnderFlood.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Conditions and reasons of a VMNetworkProfile.
const (
	// ConditionOverlapping is True when an older profile has some of the VMs.
	ConditionOverlapping = "Overlapping"

	// ConditionDisturbed is True when some of the profile's VMs are kept from their
	// network work, by other VMs or by themselves.
	ConditionDisturbed = "Disturbed"
	// ReasonOwnLimit: the CPU limits of their pods keep some VMs from it.
	ReasonOwnLimit = "OwnLimit"
	// ReasonOwnWeight: VMs that have more weight keep some VMs from it.
	ReasonOwnWeight = "OwnWeight"
	// ReasonNeighbour: other work on the same cores keeps some VMs from it.
	ReasonNeighbour = "Neighbour"
	// ReasonOwnWork: only their own computing keeps some VMs from it.
	ReasonOwnWork = "OwnWork"
	// ReasonAllStable: no VM that is known is kept from it.
	ReasonAllStable = "AllStable"

	// ReasonGoverning: the profile has VMs.
	ReasonGoverning = "Governing"
	// ReasonNoVMsMatched: the selector picks no running VM.
	ReasonNoVMsMatched = "NoVMsMatched"
	// ReasonInvalidSelector: the selector cannot be evaluated.
	ReasonInvalidSelector = "InvalidSelector"
	// ReasonOlderProfileWins: all matched VMs belong to an older profile.
	ReasonOlderProfileWins = "OlderProfileWins"
)

// VMNetworkProfile describes the network needs of some VMs of its namespace.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=vmnp,categories={joulevirt}
// +kubebuilder:printcolumn:name="Class",type=string,JSONPath=`.spec.trafficClass`
// +kubebuilder:printcolumn:name="Affinity",type=string,JSONPath=`.spec.affinity`
// +kubebuilder:printcolumn:name="Latency-Budget",type=string,JSONPath=`.spec.latencyBudget`
// +kubebuilder:printcolumn:name="VMs",type=integer,JSONPath=`.status.governedVMs`
// +kubebuilder:printcolumn:name="In-Force",type=integer,JSONPath=`.status.vmsInForce`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Disturbed",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Disturbed")].reason`
// +kubebuilder:printcolumn:name="Under-Flood",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="UnderFlood")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type VMNetworkProfile struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the owner's.
	// +required
	Spec VMNetworkProfileSpec `json:"spec"`
	// status is the manager's. Until it observed the object, observedGeneration is
	// -1: kstatus takes what says nothing for current.
	// +kubebuilder:default={"observedGeneration":-1}
	// +optional
	Status VMNetworkProfileStatus `json:"status,omitempty"`
}

// VMNetworkProfileList is a list of VMNetworkProfiles.
// +kubebuilder:object:root=true
type VMNetworkProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VMNetworkProfile `json:"items"`
}
