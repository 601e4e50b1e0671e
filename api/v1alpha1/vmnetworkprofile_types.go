package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
	// floor is the rate in bit/s that a VM keeps whatever is planned, for
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

// GroupTargetKind is what spreads traffic over a group of VMs.
// +kubebuilder:validation:Enum=Service;HTTPRoute;GRPCRoute;TLSRoute;TCPRoute
type GroupTargetKind string

const (
	// GroupService is a Service whose selector includes LabelServing.
	GroupService GroupTargetKind = "Service"
	// GroupHTTPRoute is a Gateway API HTTPRoute.
	GroupHTTPRoute GroupTargetKind = "HTTPRoute"
	// GroupGRPCRoute is a Gateway API GRPCRoute.
	GroupGRPCRoute GroupTargetKind = "GRPCRoute"
	// GroupTLSRoute is a Gateway API TLSRoute.
	GroupTLSRoute GroupTargetKind = "TLSRoute"
	// GroupTCPRoute is a Gateway API TCPRoute.
	GroupTCPRoute GroupTargetKind = "TCPRoute"
)

// The label that a Service's selector includes and the template of the group's
// VMs carries. The manager changes its value on launcher pods, and of them
// nothing else but LabelFold and AnnotationProfile.
const (
	// LabelServing is the label's name.
	LabelServing = "joulevirt.io/serving"
	// ServingActive is the value that the Service selects.
	ServingActive = "active"
	// ServingStandby is the value of a VM that gets no new connections.
	ServingStandby = "standby"
	// LabelFold names the Service that a launcher pod shares with others of its
	// group, when a route has more VMs than it can have backends.
	LabelFold = "joulevirt.io/fold"
	// AnnotationProfile names the profile that put a launcher pod on standby, or
	// into a fold.
	AnnotationProfile = "joulevirt.io/profile"
)

// Headroom says which loss a group's active VMs must be able to carry.
// +kubebuilder:validation:Enum=LargestMember;None
type Headroom string

const (
	// HeadroomLargestMember means that the active VMs carry all traffic also
	// without the one of them that can carry most.
	HeadroomLargestMember Headroom = "LargestMember"
	// HeadroomNone means that no loss is provided for.
	HeadroomNone Headroom = "None"
)

// RouteParent is a Gateway, or one of its listeners, that a route attaches to.
type RouteParent struct {
	// name of the Gateway.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
	// namespace of the Gateway. Absent: the profile's.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace *string `json:"namespace,omitempty"`
	// sectionName is the listener. Absent: all that allow the route.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	SectionName *string `json:"sectionName,omitempty"`
	// port of the listeners. Absent: any.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +optional
	Port *int32 `json:"port,omitempty"`
}

// RouteTemplate is what a generated route says beside its backends.
type RouteTemplate struct {
	// parentRefs are the Gateways that the route attaches to.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +required
	ParentRefs []RouteParent `json:"parentRefs"`
	// hostnames that the route serves. Absent: all of the Gateway's.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +optional
	Hostnames []string `json:"hostnames,omitempty"`
	// matches of the route's only rule, as in the rules of the route's kind.
	// Absent: everything.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Matches []runtime.RawExtension `json:"matches,omitempty"`
	// filters of the route's only rule, as in the rules of the route's kind.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Filters []runtime.RawExtension `json:"filters,omitempty"`
}

// TrafficGroup declares that the profile's VMs are interchangeable behind one
// Service or Gateway API route.
//
// A Service keeps its selector, which must include the label
// joulevirt.io/serving: active, and the VMs' template carries that label. A
// route is generated from a template, or it is a route without rules of anybody
// else, which hands its rules over.
// +kubebuilder:validation:XValidation:rule="!has(self.route) || self.kind != 'Service'",message="route is only for kinds of routes: remove route or set kind to HTTPRoute, GRPCRoute, TLSRoute or TCPRoute"
// +kubebuilder:validation:XValidation:rule="self.kind == 'Service' || has(self.port)",message="port is required with a route: set the port that the VMs serve on"
// +kubebuilder:validation:XValidation:rule="!has(self.port) || self.kind != 'Service'",message="port is only for kinds of routes: the Service names its own ports"
// +kubebuilder:validation:XValidation:rule="!has(self.route) || self.kind in ['HTTPRoute', 'GRPCRoute'] || (!has(self.route.matches) && !has(self.route.filters))",message="route.matches and route.filters are only for HTTPRoute and GRPCRoute: remove them"
// +kubebuilder:validation:XValidation:rule="!has(self.route) || self.kind != 'TCPRoute' || !has(self.route.hostnames)",message="route.hostnames is not for TCPRoute: remove it"
type TrafficGroup struct {
	// kind of the object that spreads the traffic.
	// +kubebuilder:default=Service
	// +optional
	Kind GroupTargetKind `json:"kind,omitempty"`

	// name of the Service or route, in the profile's namespace.
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="name must be the name of a Service or route: lower-case letters, digits, - and ."
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`

	// minActive is the number of VMs that keep serving whatever is planned.
	// +kubebuilder:validation:XValidation:rule="self >= 1",message="minActive must be 1 or more: a group without an active VM serves nobody"
	// +kubebuilder:default=2
	// +optional
	MinActive int32 `json:"minActive,omitempty"`

	// headroom says which loss the active VMs must be able to carry.
	// +kubebuilder:default=LargestMember
	// +optional
	Headroom Headroom `json:"headroom,omitempty"`

	// port that the VMs serve on. Only for routes.
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 65535",message="port must be from 1 to 65535"
	// +optional
	Port *int32 `json:"port,omitempty"`

	// route is the template of the route, which is then generated and kept with
	// this name. Absent with a kind of route: the route exists and has no rules
	// of its own.
	// +optional
	Route *RouteTemplate `json:"route,omitempty"`
}

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
	// +required
	Selector metav1.LabelSelector `json:"selector"`

	// trafficClass says what the VMs' traffic needs most.
	// +kubebuilder:default=Interactive
	// +optional
	TrafficClass TrafficClass `json:"trafficClass,omitempty"`

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

// VMExample is one VM of the profile and what a lever does for it.
type VMExample struct {
	// name of the VirtualMachineInstance.
	Name string `json:"name"`
	// node that runs it.
	// +optional
	Node string `json:"node,omitempty"`
	// lever that is told about.
	Lever Lever `json:"lever"`
	// state that the lever is in for the VM.
	State LeverState `json:"state"`
	// reason is a CamelCase word, the same as in the node's plan.
	Reason string `json:"reason"`
	// message says the reason in words.
	// +optional
	Message string `json:"message,omitempty"`
}

// TrafficSpread tells how unevenly a group's traffic is spread.
type TrafficSpread struct {
	// sigmaBitsPerSecond is the population standard deviation of the members'
	// rates.
	SigmaBitsPerSecond int64 `json:"sigmaBitsPerSecond"`
	// effectiveTalkers is (sum r)^2 / sum r^2 of the members' rates: from 1, one
	// member has all, to their number.
	EffectiveTalkers resource.Quantity `json:"effectiveTalkers"`
}

// MemberShare is one VM of a group and its share of the group's traffic.
type MemberShare struct {
	// name of the VirtualMachineInstance.
	Name string `json:"name"`
	// node that runs it.
	// +optional
	Node string `json:"node,omitempty"`
	// ready is true when the VM may serve.
	// +optional
	Ready bool `json:"ready"`
	// perMille of new traffic that is planned for the VM.
	PerMille int32 `json:"perMille"`
	// measuredPerMille is the VM's part of the bytes of all members. It has all
	// the VM's traffic in it, not the group's alone. Absent: not known.
	// +optional
	MeasuredPerMille *int32 `json:"measuredPerMille,omitempty"`
	// limitBitsPerSecond is the rate above which no traffic is steered to the VM:
	// the least of its ceiling and of what it is known to carry well, or 1.3 times
	// the highest rate that went well. Absent: not known.
	// +optional
	LimitBitsPerSecond *int64 `json:"limitBitsPerSecond,omitempty"`
	// reason is a CamelCase word.
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
}

// TrafficStatus is what became of the profile's group.
type TrafficStatus struct {
	// observedGeneration is the generation of the spec that this status is of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// members of the group: running VMs that the profile governs.
	Members int32 `json:"members"`
	// readyMembers may serve.
	ReadyMembers int32 `json:"readyMembers"`
	// activeMembers are ready and get new traffic.
	ActiveMembers int32 `json:"activeMembers"`
	// state of the lever TrafficShare for the group.
	State LeverState `json:"state"`
	// reason is a CamelCase word.
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// message says the reason in words.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
	// revision is a hash of the planned shares. It is what an approval names.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Revision string `json:"revision,omitempty"`
	// recommendedAt is when shares of mode Recommend were planned.
	// +optional
	RecommendedAt *metav1.Time `json:"recommendedAt,omitempty"`
	// now tells how the traffic is spread, by the newest rates.
	// +optional
	Now *TrafficSpread `json:"now,omitempty"`
	// planned tells how it would be spread.
	// +optional
	Planned *TrafficSpread `json:"planned,omitempty"`
	// saving against equal shares, foretold. Absent: not known.
	// +optional
	Saving *Saving `json:"saving,omitempty"`
	// lingeringBytesPercent is the share of the members' bytes that VMs carry
	// beyond their planned shares, as long-lived connections do not move. Absent:
	// not known.
	// +optional
	LingeringBytesPercent *int32 `json:"lingeringBytesPercent,omitempty"`
	// shares of some of the members, at most 50, the largest first.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	// +optional
	Shares []MemberShare `json:"shares,omitempty"`
	// conditions: Steered, WeightsContested.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Conditions and reasons of a group's traffic. The reasons of its shares are
// those of the planner.
const (
	// ConditionSteered is True when the traffic follows the planned shares.
	ConditionSteered = "Steered"
	// ConditionWeightsContested is True when somebody else changed the shares back
	// twice: they are left alone until the profile changes.
	ConditionWeightsContested = "WeightsContested"

	// ReasonGroupNotFound: the Service or route does not exist.
	ReasonGroupNotFound = "GroupNotFound"
	// ReasonGroupTaken: an older profile has the same Service or route as group.
	ReasonGroupTaken = "GroupTaken"
	// ReasonLabelNotSelected: the Service's selector lacks LabelServing.
	ReasonLabelNotSelected = "LabelNotSelected"
	// ReasonSelectorMismatch: the Service selects other pods than the members'.
	ReasonSelectorMismatch = "SelectorMismatch"
	// ReasonSessionAffinity: the Service has sessionAffinity.
	ReasonSessionAffinity = "SessionAffinity"
	// ReasonServiceUnsupported: the Service is headless, an ExternalName, or
	// publishes addresses that are not ready.
	ReasonServiceUnsupported = "ServiceUnsupported"
	// ReasonLocalTrafficPolicy: the Service keeps traffic near its sender, by a
	// traffic policy Local or by trafficDistribution.
	ReasonLocalTrafficPolicy = "LocalTrafficPolicy"
	// ReasonForeignRules: the route has rules of somebody else.
	ReasonForeignRules = "ForeignRules"
	// ReasonForeignObject: an object with the name of one to generate exists and
	// is somebody else's.
	ReasonForeignObject = "ForeignObject"
	// ReasonRouteNotAccepted: no Gateway accepts the route.
	ReasonRouteNotAccepted = "RouteNotAccepted"
	// ReasonRouteInvalid: the API server refuses the route.
	ReasonRouteInvalid = "RouteInvalid"
	// ReasonKindNotServed: the cluster does not have the route's kind.
	ReasonKindNotServed = "KindNotServed"
	// ReasonSteering: the shares are being changed.
	ReasonSteering = "Steering"
	// ReasonSteered: the shares are in force.
	ReasonSteered = "Steered"
	// ReasonUncontested: nobody else changes the shares.
	ReasonUncontested = "Uncontested"
	// ReasonMixedPolicies: members are on nodes of which one's policy does not
	// allow the lever, or no policy governs it.
	ReasonMixedPolicies = "MixedPolicies"
	// ReasonNoGroup: the VM's profile has no group.
	ReasonNoGroup = "NoGroup"
	// ReasonNoMembers: no running VM belongs to the group.
	ReasonNoMembers = "NoMembers"
	// ReasonNoReadyMembers: no VM of the group is ready: traffic is left as it is.
	ReasonNoReadyMembers = "NoReadyMembers"
	// ReasonMemberNotReady: the VM is not ready.
	ReasonMemberNotReady = "MemberNotReady"
	// ReasonLearning: it is not known yet how much traffic the VMs carry well.
	ReasonLearning = "Learning"
	// ReasonKept: the VM keeps its share.
	ReasonKept = "Kept"
)

// VMNetworkProfileStatus is what became of the profile.
type VMNetworkProfileStatus struct {
	// observedGeneration is the generation of the spec that this status is of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// matchedVMs is the number of running VMs that the selector picks.
	// +optional
	MatchedVMs int32 `json:"matchedVMs"`

	// governedVMs is the number of matched VMs that no older profile has.
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

	// traffic tells what became of the group. Absent: the profile has none.
	// +optional
	Traffic *TrafficStatus `json:"traffic,omitempty"`

	// conditions: Ready, Overlapping.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Conditions and reasons of a VMNetworkProfile.
const (
	// ConditionOverlapping is True when an older profile has some of the VMs.
	ConditionOverlapping = "Overlapping"

	// ReasonGoverning: the profile has VMs.
	ReasonGoverning = "Governing"
	// ReasonNoVMsMatched: the selector picks no running VM.
	ReasonNoVMsMatched = "NoVMsMatched"
	// ReasonInvalidSelector: the selector cannot be evaluated.
	ReasonInvalidSelector = "InvalidSelector"
	// ReasonOlderProfileWins: all matched VMs belong to an older profile.
	ReasonOlderProfileWins = "OlderProfileWins"
	// ReasonNoOverlap: no other profile has any of the VMs.
	ReasonNoOverlap = "NoOverlap"
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
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type VMNetworkProfile struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the owner's.
	// +required
	Spec VMNetworkProfileSpec `json:"spec"`
	// status is the manager's.
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
