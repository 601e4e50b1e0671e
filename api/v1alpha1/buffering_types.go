package v1alpha1

// FloodDefence says whether packets may be held while a VM is flooded with small ones.
// +kubebuilder:validation:Enum=Allow;Forbid
type FloodDefence string

const (
	// FloodDefenceAllow has packets held during a flood, whatever latencyBudget says.
	FloodDefenceAllow FloodDefence = "Allow"
	// FloodDefenceForbid has a flood change nothing. It is reported where latencyBudget lets
	// packets be held, for only there packets are counted.
	FloodDefenceForbid FloodDefence = "Forbid"
)

// TransportProtocol of a service.
// +kubebuilder:validation:Enum=TCP;UDP
type TransportProtocol string

// The transport protocols.
const (
	TransportTCP TransportProtocol = "TCP"
	TransportUDP TransportProtocol = "UDP"
)

// ServicePort is a port that a VM serves.
type ServicePort struct {
	// protocol of the service.
	// +kubebuilder:default=UDP
	// +optional
	Protocol TransportProtocol `json:"protocol,omitempty"`
	// port that the VM listens on.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}

// BufferingPreferences say how the packets of a VM may be held. How long is up to
// latencyBudget.
type BufferingPreferences struct {
	// onPacketsPerSecond is the rate of packets, of each tap and direction, from which they are
	// held. A packet of many segments is one. Absent: two in a window, so 2000 for 1ms and 8000
	// for 250us.
	// +kubebuilder:validation:XValidation:rule="self >= 1000 && self <= 10000000",message="onPacketsPerSecond must be from 1000 to 10000000 packets per second"
	// +optional
	OnPacketsPerSecond int32 `json:"onPacketsPerSecond,omitempty"`

	// floodDefence says whether packets may be held for up to 500us while a VM is
	// flooded with small packets, whatever latencyBudget says.
	// +kubebuilder:default=Allow
	// +optional
	FloodDefence FloodDefence `json:"floodDefence,omitempty"`

	// smallPacketServices are ports to which many small packets are what the VM is there
	// for, such as DNS or VoIP. Up to 10000 a second, or three times their usual rate, do not
	// count as a flood.
	// +listType=map
	// +listMapKey=protocol
	// +listMapKey=port
	// +kubebuilder:validation:MaxItems=8
	// +optional
	SmallPacketServices []ServicePort `json:"smallPacketServices,omitempty"`
}

// BufferingAction holds the packets of a VM's taps and releases them in
// bunches.
// +kubebuilder:validation:XValidation:rule="has(self.windowMicroseconds) || has(self.floodWindowMicroseconds)",message="buffering must have windowMicroseconds, floodWindowMicroseconds or both"
type BufferingAction struct {
	// windowMicroseconds is the distance of the bunches. Absent: packets are held only
	// during floods.
	// +kubebuilder:validation:Enum=125;250;500;1000
	// +optional
	WindowMicroseconds *int32 `json:"windowMicroseconds,omitempty"`
	// floodWindowMicroseconds is the distance of the bunches during a flood. Absent:
	// floods change nothing.
	// +kubebuilder:validation:Enum=125;250;500
	// +optional
	FloodWindowMicroseconds *int32 `json:"floodWindowMicroseconds,omitempty"`
	// onPacketsPerSecond is the rate from which packets are held.
	// +kubebuilder:validation:Minimum=1
	OnPacketsPerSecond int32 `json:"onPacketsPerSecond"`
	// smallPacketServices do not count as a flood, up to three times their usual rate.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +optional
	SmallPacketServices []ServicePort `json:"smallPacketServices,omitempty"`
}

// BufferingHalf is the state of the packets that a VM sends. An agent may know other words.
// +kubebuilder:validation:Pattern=`^[A-Za-z]+$`
// +kubebuilder:validation:MaxLength=64
type BufferingHalf string

const (
	// BufferingHalfInForce: packets are held when they come fast.
	BufferingHalfInForce BufferingHalf = "InForce"
	// BufferingHalfNoGuestTools: the guest's tools are needed, and do not run.
	BufferingHalfNoGuestTools BufferingHalf = "NoGuestTools"
	// BufferingHalfGuestDeclines: the guest declared that it tolerates no delay.
	BufferingHalfGuestDeclines BufferingHalf = "GuestDeclines"
)

// BufferingReadBack is how a VM's packets are held, as read back.
type BufferingReadBack struct {
	// windowMicroseconds that is in force: the plan's, or what the guest tolerates when
	// that is less. 0: only during floods, or not at all.
	WindowMicroseconds int32 `json:"windowMicroseconds"`
	// transmit is the state of packets from the VM, which the guest's tools hold.
	Transmit BufferingHalf `json:"transmit"`
}

// ConditionUnderFlood of a VMNetworkProfile is True when some of its VMs are flooded
// with small packets.
const ConditionUnderFlood = "UnderFlood"

// Reasons of condition UnderFlood.
const (
	// ReasonSmallPacketFlood: some VMs are flooded.
	ReasonSmallPacketFlood = "SmallPacketFlood"
	// ReasonNoFlood: no VM that is watched is.
	ReasonNoFlood = "NoFlood"
	// ReasonNotWatched: lever Buffering watches none of the VMs.
	ReasonNotWatched = "NotWatched"
)

// Reasons of lever Buffering.
const (
	// ReasonBuffered: packets are held when they come fast.
	ReasonBuffered = "Buffered"
	// ReasonFloodDefenceOnly: packets are held only during floods; the message says why.
	ReasonFloodDefenceOnly = "FloodDefenceOnly"
	// ReasonNoLatencyBudget: the profile's latencyBudget leaves no time to hold packets.
	ReasonNoLatencyBudget = "NoLatencyBudget"
	// ReasonBufferingUnsupported: the node lacks what the lever needs.
	ReasonBufferingUnsupported = "BufferingUnsupported"
	// ReasonFewPackets: packets have not come fast enough to be held.
	ReasonFewPackets = "FewPackets"
	// ReasonHurts: every window that the profile allows was seen to cost service.
	ReasonHurts = "Hurts"
	// ReasonNoTap: the VM has no tap on the node, as with SR-IOV or passt.
	ReasonNoTap = "NoTap"
	// ReasonForeignQueue: a device of the VM has somebody else's queueing discipline.
	ReasonForeignQueue = "ForeignQueue"
)
