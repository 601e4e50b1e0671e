package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PolicyMode says how far the product may go.
// +kubebuilder:validation:Enum=Observe;Recommend;Enforce
type PolicyMode string

const (
	// ModeObserve changes nothing and reports what could be saved.
	ModeObserve PolicyMode = "Observe"
	// ModeRecommend plans, and acts on what is approved.
	ModeRecommend PolicyMode = "Recommend"
	// ModeEnforce acts.
	ModeEnforce PolicyMode = "Enforce"
)

// Guardrails bound what a plan may do to a node.
type Guardrails struct {
	// maxCoreUtilizationPercent is the predicted use of a physical core above
	// which no vCPU is placed on it, in percent of one CPU per sibling.
	// +kubebuilder:validation:XValidation:rule="self >= 10 && self <= 100",message="maxCoreUtilizationPercent must be from 10 to 100"
	// +kubebuilder:default=85
	// +optional
	MaxCoreUtilizationPercent int32 `json:"maxCoreUtilizationPercent,omitempty"`

	// reservedCPUs are never used for pins, in the kernel's list form, such as
	// "0-1,64-65".
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*$') && self.split(',').all(r, !r.contains('-') || int(r.split('-')[0]) <= int(r.split('-')[1]))",message="reservedCPUs must be a CPU list with the lower number of a range first, such as 0-1,64-65"
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	ReservedCPUs *string `json:"reservedCPUs,omitempty"`

	// siblingSharing says whose vCPUs may be bound to the siblings (hyper-threads)
	// of one physical core. It bounds pins: VMs that are not bound run anywhere.
	// +kubebuilder:default=SameNamespace
	// +optional
	SiblingSharing SiblingSharing `json:"siblingSharing,omitempty"`

	// maxNodeCPUPercent is the predicted use of a node's CPUs, at the 95th percentile of
	// 15 minutes, up to which lever Placement moves VMs to it. VMs leave a node that is
	// used by 10 percent more.
	// +kubebuilder:validation:XValidation:rule="self >= 10 && self <= 85",message="maxNodeCPUPercent must be from 10 to 85"
	// +kubebuilder:default=65
	// +optional
	MaxNodeCPUPercent int32 `json:"maxNodeCPUPercent,omitempty"`

	// maxNodeMemoryPercent is how much of a node's allocatable memory pods may request
	// after lever Placement has moved a VM to it.
	// +kubebuilder:validation:XValidation:rule="self >= 10 && self <= 100",message="maxNodeMemoryPercent must be from 10 to 100"
	// +kubebuilder:default=90
	// +optional
	MaxNodeMemoryPercent int32 `json:"maxNodeMemoryPercent,omitempty"`
}

// SiblingSharing says whose vCPUs may be bound to the siblings of one core.
// +kubebuilder:validation:Enum=SameVM;SameNamespace;Any
type SiblingSharing string

const (
	// ShareWithinVM keeps the vCPUs of different VMs on different cores.
	ShareWithinVM SiblingSharing = "SameVM"
	// ShareWithinNamespace keeps those of different namespaces on different cores.
	ShareWithinNamespace SiblingSharing = "SameNamespace"
	// ShareAny lets all vCPUs share cores.
	ShareAny SiblingSharing = "Any"
)

// Verification says how a saving is proven.
type Verification struct {
	// holdBackPercent is the share of time in which an adopted lever is off, for comparison:
	// what it saves is booked by this. 0: nothing is held back, and nothing booked.
	// +kubebuilder:validation:XValidation:rule="self >= 0 && self <= 33",message="holdBackPercent must be from 0 to 33"
	// +kubebuilder:default=5
	// +optional
	HoldBackPercent *int32 `json:"holdBackPercent,omitempty"`

	// trials say whether levers have to prove themselves in mode Enforce.
	// +kubebuilder:default=Required
	// +optional
	Trials TrialMode `json:"trials,omitempty"`
}

// EnergyPolicySpec says what is allowed on which nodes.
// +kubebuilder:validation:XValidation:rule="!has(self.hostPower) || (has(self.levers) && self.levers.exists(l, l == 'Placement'))",message="spec.hostPower needs lever Placement, which empties hosts: add Placement to spec.levers or remove spec.hostPower"
// +kubebuilder:validation:XValidation:rule="has(self.mode)",message="spec.mode is required: set Observe to change nothing, Recommend to act on approval, or Enforce to act"
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || self.mode == 'Observe' || (has(self.levers) && size(self.levers) > 0)",message="spec.levers must name at least one lever in mode Recommend or Enforce: for example levers: [Affinity]"
// +kubebuilder:validation:XValidation:rule="!has(self.approvals) || size(self.approvals) == 0 || (has(self.mode) && self.mode == 'Recommend')",message="spec.approvals is only for mode Recommend: remove it or set mode to Recommend"
type EnergyPolicySpec struct {
	// priority decides between policies that select the same node: the higher
	// wins, at equal priority the older.
	// +kubebuilder:validation:XValidation:rule="self >= -1000000 && self <= 1000000",message="priority must be from -1000000 to 1000000"
	// +kubebuilder:default=0
	// +optional
	Priority int32 `json:"priority,omitempty"`

	// nodeSelector picks nodes by label. Absent: all nodes that run VMs.
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || size(e.values) == 0))",message="nodeSelector.matchExpressions must each be In or NotIn with values, or Exists or DoesNotExist without"
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// namespaceSelector picks the namespaces whose VMs may be acted on, by
	// label. Absent: all.
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || size(e.values) == 0))",message="namespaceSelector.matchExpressions must each be In or NotIn with values, or Exists or DoesNotExist without"
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// mode says how far the product may go. It has no default: an admin
	// decides.
	// +optional
	Mode PolicyMode `json:"mode,omitempty"`

	// paused undoes all that the policy does, on nodes and of groups, and lets nothing
	// new be done. Its status and metrics go on. When it ends, what the policy says is
	// done again.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// levers that are allowed.
	// +listType=set
	// +kubebuilder:validation:MaxItems=7
	// +optional
	Levers []Lever `json:"levers,omitempty"`

	// defaults are what is assumed of VMs without a VMNetworkProfile on the policy's nodes, in
	// the namespaces that it selects. Absent: they are left alone. A profile replaces all of
	// them; an owner opts out by annotation.
	// +optional
	Defaults *ProfileDefaults `json:"defaults,omitempty"`

	// energy says where energy is read and what counts.
	// +kubebuilder:default={}
	// +optional
	Energy EnergySettings `json:"energy,omitempty"`

	// guardrails bound what a plan may do to a node.
	// +kubebuilder:default={}
	// +optional
	Guardrails Guardrails `json:"guardrails,omitempty"`

	// hostPower lets hosts without VMs be powered off, in mode Enforce, and on again before they
	// are needed. Absent: no host is.
	// +optional
	HostPower *HostPower `json:"hostPower,omitempty"`

	// budgets bound how much changes at once.
	// +kubebuilder:default={}
	// +optional
	Budgets Budgets `json:"budgets,omitempty"`

	// verification says how a saving is proven.
	// +kubebuilder:default={}
	// +optional
	Verification Verification `json:"verification,omitempty"`

	// tariff turns saved energy into cost and CO2 equivalents. Absent: neither is reported.
	// +optional
	Tariff *Tariff `json:"tariff,omitempty"`

	// recommendationValidity is how long a recommendation stays as it is and
	// can be approved.
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$') && duration(self) >= duration('1m') && duration(self) <= duration('720h')",message="recommendationValidity must be a duration from 1m to 720h, such as 24h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:default="24h"
	// +optional
	RecommendationValidity *metav1.Duration `json:"recommendationValidity,omitempty"`

	// approvals are the revisions that may be done in mode Recommend: of NodePlans and the
	// PlacementPlan, in spec.revision, and of groups, in status.traffic.revision of their
	// profile.
	// +listType=set
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	// +optional
	Approvals []string `json:"approvals,omitempty"`
}

// ProfileDefaults are the parts of a VMNetworkProfile that a policy may assume.
type ProfileDefaults struct {
	// trafficClass says what the VMs' traffic needs most.
	// +kubebuilder:default=Interactive
	// +optional
	TrafficClass TrafficClass `json:"trafficClass,omitempty"`

	// affinity says how the VMs' vCPUs may be bound to CPUs.
	// +kubebuilder:default=Auto
	// +optional
	Affinity AffinityPreference `json:"affinity,omitempty"`

	// latencyBudget is the delay that buffering may add to a round trip. 0 means that
	// packets are never held.
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

	// serviceLevels are what the VMs must keep.
	// +kubebuilder:default={}
	// +optional
	ServiceLevels ServiceLevels `json:"serviceLevels,omitempty"`
}

// NodeCounts counts a policy's nodes.
type NodeCounts struct {
	// selected by the policy.
	Selected int32 `json:"selected"`
	// governed: selected, and no other policy wins them.
	Governed int32 `json:"governed"`
	// reporting: governed, with a fresh report of their agent.
	Reporting int32 `json:"reporting"`
	// metered: governed, with power measured by one of spec.energy.sources.
	Metered int32 `json:"metered"`
}

// ReasonCount counts VMs by reason.
type ReasonCount struct {
	// reason is a CamelCase word.
	Reason string `json:"reason"`
	// count of VMs.
	Count int32 `json:"count"`
}

// LeverCoverage reports how many VMs, and how much of their traffic, a lever
// reaches.
type LeverCoverage struct {
	// lever that is reported.
	Lever Lever `json:"lever"`
	// reachedVMs are the VMs on the governed nodes that the lever acts on.
	ReachedVMs int32 `json:"reachedVMs"`
	// reachedBytesPercent is the share of all VMs' traffic that the reached VMs
	// carry. Absent: not known.
	// +optional
	ReachedBytesPercent *int32 `json:"reachedBytesPercent,omitempty"`
	// reasons why the rest is not reached.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Reasons []ReasonCount `json:"reasons,omitempty"`
}

// EnergySourceStatus is how one of the policy's energy sources does.
type EnergySourceStatus struct {
	// type of the source.
	Type PowerSource `json:"type"`
	// nodes whose power the source gives: those for which no source before it does. It is 0, without a
	// reason, while those before it give the power of all.
	// +optional
	Nodes int32 `json:"nodes"`
	// reason is a CamelCase word that says why the source does not give the power
	// of the first governed node, by name, that it was tried for in vain, or why
	// it gives nothing newer of it. Absent: there is none.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Reason string `json:"reason,omitempty"`
	// message names that node, what is wrong and what to do.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Message string `json:"message,omitempty"`
}

// EnergyPolicyStatus is what became of the policy.
type EnergyPolicyStatus struct {
	// observedGeneration is the generation of the spec that this status is of, -1 until
	// there is one.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// nodes counts the policy's nodes.
	// +optional
	Nodes NodeCounts `json:"nodes,omitzero"`

	// watts that the governed, metered nodes draw, rounded. Condition
	// MeterAvailable says when it adds up figures of CPU packages and of whole
	// machines. Absent: nothing is metered.
	// +optional
	Watts *int64 `json:"watts,omitempty"`

	// energySources report how each of spec.energy.sources does, in their order.
	// +listType=map
	// +listMapKey=type
	// +optional
	EnergySources []EnergySourceStatus `json:"energySources,omitempty"`

	// joulesPerGB is the energy of the governed, metered nodes per gigabyte (1e9
	// bytes) of their VMs' traffic, now. Absent: not known, or no traffic.
	// +optional
	JoulesPerGB Decimal `json:"joulesPerGB,omitempty"`

	// potential savings by lever, modelled.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Potential []Saving `json:"potential,omitempty"`

	// proven savings by lever, of what the metered nodes draw now on which it was adopted, is
	// in force, and is not held back.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Proven []Saving `json:"proven,omitempty"`

	// savings of the running and the last month, and in total, measured and modelled
	// apart. Older months are in the metrics' history.
	// +listType=map
	// +listMapKey=basis
	// +listMapKey=period
	// +kubebuilder:validation:MaxItems=6
	// +optional
	Savings []Savings `json:"savings,omitempty"`

	// trials report how each lever stands on the nodes of each CPU model and on each group: those on trial first, then
	// those that were decided last.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Trials []LeverTrial `json:"trials,omitempty"`

	// coverage reports how many VMs each lever reaches, and why not the rest.
	// +listType=map
	// +listMapKey=lever
	// +optional
	Coverage []LeverCoverage `json:"coverage,omitempty"`

	// findings are what wastes energy on the governed nodes and their VMs before any lever acts,
	// the costliest first. Nothing is done about them.
	// +listType=map
	// +listMapKey=reason
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Findings []Finding `json:"findings,omitempty"`

	// conditions: Ready, Paused, ChangesAllowed, NodesContested, MeterAvailable,
	// SavingsProven, LedgerStored, and ApprovalsMatched while there are approvals in mode
	// Recommend.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Conditions and reasons of an EnergyPolicy.
const (
	// ConditionNodesContested is True when another policy wins some nodes.
	ConditionNodesContested = "NodesContested"

	// ReasonGoverningNodes: the policy governs nodes.
	ReasonGoverningNodes = "GoverningNodes"
	// ReasonNoNodesSelected: the selector picks no node that runs VMs.
	ReasonNoNodesSelected = "NoNodesSelected"
	// ReasonOtherPolicyWins: all selected nodes belong to other policies.
	ReasonOtherPolicyWins = "OtherPolicyWins"
	// ReasonNotContested: no other policy wins any selected node, and no older profile any of the VMs.
	ReasonNotContested = "NotContested"
)

// EnergyPolicy says what the product may do on which nodes.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=epol,categories={joulevirt}
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Paused",type=boolean,JSONPath=`.spec.paused`
// +kubebuilder:printcolumn:name="Levers",type=string,JSONPath=`.spec.levers`
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes.governed`
// +kubebuilder:printcolumn:name="Metered",type=integer,JSONPath=`.status.nodes.metered`
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.status.energySources[?(@.nodes>0)].type`
// +kubebuilder:printcolumn:name="Watts",type=integer,JSONPath=`.status.watts`
// +kubebuilder:printcolumn:name="J/GB",type=string,JSONPath=`.status.joulesPerGB`
// +kubebuilder:printcolumn:name="Saved kWh",type=string,JSONPath=`.status.savings[?(@.period=="Total")].kilowattHours.value`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Priority",type=integer,priority=1,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Saved by",type=string,priority=1,JSONPath=`.status.savings[?(@.period=="Total")].basis`
// +kubebuilder:printcolumn:name="Proven",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="SavingsProven")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type EnergyPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the admin's.
	// +required
	Spec EnergyPolicySpec `json:"spec"`
	// status is the manager's. Until it observed the object, observedGeneration is
	// -1: kstatus takes what says nothing for current.
	// +kubebuilder:default={"observedGeneration":-1}
	// +optional
	Status EnergyPolicyStatus `json:"status,omitempty"`
}

// EnergyPolicyList is a list of EnergyPolicies.
// +kubebuilder:object:root=true
type EnergyPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []EnergyPolicy `json:"items"`
}
