package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// GroupTargetKind is what spreads traffic over a group of VMs.
// +kubebuilder:validation:Enum=Service;HTTPRoute;GRPCRoute
type GroupTargetKind string

const (
	// GroupService is a Service whose selector includes joulevirt.io/serving: active.
	GroupService GroupTargetKind = "Service"
	// GroupHTTPRoute is a Gateway API HTTPRoute.
	GroupHTTPRoute GroupTargetKind = "HTTPRoute"
	// GroupGRPCRoute is a Gateway API GRPCRoute.
	GroupGRPCRoute GroupTargetKind = "GRPCRoute"
)

// The label that a Service's selector includes. The manager adds it to the group's VMIs and
// their launcher pods, and changes its value on launcher pods.
const (
	// LabelServing is the label's name.
	LabelServing = "joulevirt.io/serving"
	// ServingActive is the value that the Service selects.
	ServingActive = "active"
	// ServingStandby is the value of a VM that gets no new connections.
	ServingStandby = "standby"
	// AnnotationProfile names the profile that put a launcher pod on standby.
	AnnotationProfile = "joulevirt.io/profile"
	// AnnotationAdopt, with the value "true" on a Service, is its owner's consent to have
	// LabelServing added to its selector.
	AnnotationAdopt = "joulevirt.io/adopt"
	// LabelAdopted is on a Service to whose selector LabelServing is added at admission. The
	// manager sets it.
	LabelAdopted = "joulevirt.io/adopted"
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

// RouteTemplate is what a generated route says beside its backends.
type RouteTemplate struct {
	// parentRefs are the Gateways that the route attaches to, as in a route's parentRefs.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:pruning:PreserveUnknownFields
	// +required
	ParentRefs []runtime.RawExtension `json:"parentRefs"`
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
// The Service's selector must include the label joulevirt.io/serving: active, which the
// manager adds to the VMs. A route is generated from a template.
// +kubebuilder:validation:XValidation:rule="!has(self.route) || self.kind != 'Service'",message="route is only for kinds of routes: remove route or set kind to HTTPRoute or GRPCRoute"
// +kubebuilder:validation:XValidation:rule="self.kind == 'Service' || has(self.route)",message="route is required for kinds of routes: set route.parentRefs to the Gateways of the route"
// +kubebuilder:validation:XValidation:rule="self.kind == 'Service' || has(self.port)",message="port is required with a route: set the port that the VMs serve on"
// +kubebuilder:validation:XValidation:rule="!has(self.port) || self.kind != 'Service'",message="port is only for kinds of routes: the Service names its own ports"
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

	// allowUDP steers a Service with UDP ports too. kube-proxy moves the flows of a VM that
	// leaves the Service to others, in the middle of a call or a session.
	// +optional
	AllowUDP bool `json:"allowUDP,omitempty"`

	// port that the VMs serve on. Only for routes.
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 65535",message="port must be from 1 to 65535"
	// +optional
	Port *int32 `json:"port,omitempty"`

	// route is the template of the route, which is generated with this name. Only for routes.
	// +optional
	Route *RouteTemplate `json:"route,omitempty"`
}

// MemberShare is one VM of a group and its share of the group's traffic.
type MemberShare struct {
	// name of the VirtualMachineInstance.
	Name string `json:"name"`
	// node that runs it.
	// +optional
	Node string `json:"node,omitempty"`
	// perMille of new traffic that is planned for the VM.
	PerMille int32 `json:"perMille"`
	// measuredPerMille is the VM's part of the bytes of all members. It has all
	// the VM's traffic in it, not the group's alone. Absent: not known.
	// +optional
	MeasuredPerMille *int32 `json:"measuredPerMille,omitempty"`
	// reason is a CamelCase word: MemberNotReady of a VM that may not serve.
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
	// saving against equal shares, predicted. Absent: not known.
	// +optional
	Saving *Saving `json:"saving,omitempty"`
	// shares of some of the members, at most 50, the largest first.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	// +optional
	Shares []MemberShare `json:"shares,omitempty"`
	// goals are the planned shares by VM, in parts of their sum: with them another manager goes
	// on. Absent for groups of more than 1024 VMs with a share.
	// +kubebuilder:validation:MaxProperties=1024
	// +optional
	Goals map[string]int32 `json:"goals,omitempty"`
	// limitsBitsPerSecond are the rates by node and VM above which no traffic is steered to a VM:
	// the least of its ceiling and of its head-room, by the use of its busiest vCPU and vhost
	// worker. Another manager goes on with them. VMs whose limit is not known are absent, and all
	// of groups of more than 1024 VMs.
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=1024
	// +optional
	LimitsBitsPerSecond map[string]map[string]int64 `json:"limitsBitsPerSecond,omitempty"`
	// withdrawn is what the manager's guard took the lever from the group for, because it hurt
	// a VM that got more than an even share. It stays for a while after it ended, as what
	// hurts again is withdrawn for longer. podUID names the VM. Absent: nothing, or it is
	// forgotten.
	// +optional
	Withdrawn *WithdrawnLever `json:"withdrawn,omitempty"`
}

// Reasons of a group's traffic. Those of its shares are the planner's.
const (
	// ReasonGroupNotFound: the Service or route does not exist.
	ReasonGroupNotFound = "GroupNotFound"
	// ReasonGroupTaken: an older profile has the same Service or route as group.
	ReasonGroupTaken = "GroupTaken"
	// ReasonSelectorMismatch: the Service's selector lacks LabelServing, or selects other pods than
	// the members'.
	ReasonSelectorMismatch = "SelectorMismatch"
	// ReasonServiceUnsupported: the Service is headless, an ExternalName, publishes addresses that
	// are not ready, has sessionAffinity, or keeps traffic near its sender.
	ReasonServiceUnsupported = "ServiceUnsupported"
	// ReasonForeignObject: an object with the name of one to generate exists and
	// is somebody else's.
	ReasonForeignObject = "ForeignObject"
	// ReasonRouteNotAccepted: no Gateway accepts the route.
	ReasonRouteNotAccepted = "RouteNotAccepted"
	// ReasonRouteInvalid: the API server refuses the route.
	ReasonRouteInvalid = "RouteInvalid"
	// ReasonTooManyMembers: the group has more VMs than a route can have backends,
	// which is 16.
	ReasonTooManyMembers = "TooManyMembers"
	// ReasonKindNotServed: the cluster does not have the route's kind.
	ReasonKindNotServed = "KindNotServed"
	// ReasonSteering: the shares are being changed.
	ReasonSteering = "Steering"
	// ReasonMixedPolicies: members are on nodes of which one's policy does not
	// allow the lever, or no policy governs it.
	ReasonMixedPolicies = "MixedPolicies"
	// ReasonNoGroup: the VM's profile has no group.
	ReasonNoGroup = "NoGroup"
	// ReasonNoMembers: no running VM belongs to the group.
	ReasonNoMembers = "NoMembers"
	// ReasonNoReadyMembers: no VM of the group is ready: traffic is left as it is.
	ReasonNoReadyMembers = "NoReadyMembers"
	// ReasonSkewed: traffic is concentrated where it costs least.
	ReasonSkewed = "Skewed"
	// ReasonBalanced: no other split saves enough.
	ReasonBalanced = "Balanced"
	// ReasonCurvesUnknown: it is not known yet what packets cost on the members.
	ReasonCurvesUnknown = "CurvesUnknown"
	// ReasonCurvesLinear: packets cost the same however they are split.
	ReasonCurvesLinear = "CurvesLinear"
	// ReasonFloorsExceedTotal: the members' floors add up to more than the traffic.
	ReasonFloorsExceedTotal = "FloorsExceedTotal"
	// ReasonTooFewMembers: the group has too few members to choose from.
	ReasonTooFewMembers = "TooFewMembers"
	// ReasonNoTraffic: the group has no traffic.
	ReasonNoTraffic = "NoTraffic"

	// ReasonAtLimit: the member carries as much as it can carry well.
	ReasonAtLimit = "AtLimit"
	// ReasonAtFloor: the member carries the least that it may carry.
	ReasonAtFloor = "AtFloor"
	// ReasonRemainder: the member carries what the others leave.
	ReasonRemainder = "Remainder"
	// ReasonKeptActive: the member carries a little, so that enough members and domains serve.
	ReasonKeptActive = "KeptActive"
	// ReasonActive: the member is one of those that share the traffic evenly.
	ReasonActive = "Active"
	// ReasonStandby: the member has no traffic.
	ReasonStandby = "Standby"
	// ReasonEqualShare: all members have the same share.
	ReasonEqualShare = "EqualShare"

	// ReasonMemberNotReady: the VM is not ready.
	ReasonMemberNotReady = "MemberNotReady"
	// ReasonLearning: it is not known yet how much traffic the VMs carry well, or send on average.
	ReasonLearning = "Learning"
	// ReasonKept: the VM keeps its share.
	ReasonKept = "Kept"
)
