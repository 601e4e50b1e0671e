package v1alpha1

// TurnAction lets a VM's deferrable traffic take turns with that of the node's
// other VMs. Turns lie on a grid of CLOCK_MONOTONIC: the VM's turns start at
// offset, offset + period, ... since the node's boot. Between them 256 kbit/s pass, so that no
// connection times out, and small packets, unless larger ones of their own flow wait.
// +kubebuilder:validation:XValidation:rule="self.offsetMilliseconds + self.lengthMilliseconds <= self.periodMilliseconds",message="offsetMilliseconds and lengthMilliseconds must lie within periodMilliseconds"
type TurnAction struct {
	// periodMilliseconds is the distance of two turns.
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=3600000
	PeriodMilliseconds int32 `json:"periodMilliseconds"`
	// offsetMilliseconds is when the turn starts in each period.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600000
	OffsetMilliseconds int32 `json:"offsetMilliseconds"`
	// lengthMilliseconds is how long the VM sends at full rate.
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=3600000
	LengthMilliseconds int32 `json:"lengthMilliseconds"`
}

// ShapingAction bounds what a VM sends, on each pod-side uplink.
type ShapingAction struct {
	// ceilingBitsPerSecond is the most that the VM sends. Absent: no bound.
	// +kubebuilder:validation:Minimum=256000
	// +kubebuilder:validation:Maximum=1000000000000
	// +optional
	CeilingBitsPerSecond *int64 `json:"ceilingBitsPerSecond,omitempty"`
	// turn holds traffic between the VM's turns. Absent: never held.
	// +optional
	Turn *TurnAction `json:"turn,omitempty"`
}
