package v1alpha1

// IdleState is a state that CPUs without work sleep in.
type IdleState struct {
	// name that the kernel gives it, such as C6.
	// +kubebuilder:validation:MaxLength=64
	Name string `json:"name"`
	// percent of the time of all CPUs that they were in it, over the last minute.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +optional
	Percent int32 `json:"percent"`
	// disabled is true when somebody forbade it on all CPUs.
	// +optional
	Disabled bool `json:"disabled,omitempty"`
}

// Sleep is how a node's CPUs sleep, and who forbids that.
type Sleep struct {
	// states, the shallowest first.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	States []IdleState `json:"states"`
	// heldBy are the commands of processes that hold /dev/cpu_dma_latency, looked for while CPUs
	// sleep in shallow states only.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	HeldBy []string `json:"heldBy,omitempty"`
	// kernelArguments that bound sleep.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	KernelArguments []string `json:"kernelArguments,omitempty"`
	// haltPollMicroseconds is for how long KVM has a CPU poll at most, when a vCPU has no work,
	// before it may sleep.
	// +kubebuilder:validation:Minimum=0
	// +optional
	HaltPollMicroseconds int64 `json:"haltPollMicroseconds,omitempty"`
}

// FindingOwner is who can change what wastes energy.
type FindingOwner string

const (
	// FindingOwnerClusterAdmin runs the nodes.
	FindingOwnerClusterAdmin FindingOwner = "ClusterAdmin"
	// FindingOwnerVMOwner writes the VirtualMachine.
	FindingOwnerVMOwner FindingOwner = "VMOwner"
)

// Finding is something that wastes energy before any lever acts. It is only reported.
type Finding struct {
	// reason is a CamelCase word for it.
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// count of the objects on which it was found.
	// +kubebuilder:validation:Minimum=1
	Count int32 `json:"count"`
	// objects are the costliest of them, as Node/NAME or VirtualMachineInstance/NAMESPACE/NAME.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Objects []string `json:"objects"`
	// message says what was seen of the first.
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message"`
	// watts that it costs on all of them. Absent: not known.
	// +optional
	Watts *int64 `json:"watts,omitempty"`
	// basis of the watts.
	// +optional
	Basis Basis `json:"basis,omitempty"`
	// lostCores are the CPU-seconds a second that it costs. Absent: not known.
	// +optional
	LostCores Decimal `json:"lostCores,omitempty"`
	// remedy is the line to change.
	// +kubebuilder:validation:MaxLength=512
	Remedy string `json:"remedy"`
	// changedBy is who can.
	// +kubebuilder:validation:Enum=ClusterAdmin;VMOwner
	ChangedBy FindingOwner `json:"changedBy"`
}

// Reasons of findings.
const (
	// ReasonSleepArguments: kernel arguments bound sleep.
	ReasonSleepArguments = "SleepArguments"
	// ReasonSleepHeld: a process holds /dev/cpu_dma_latency, and CPUs sleep in shallow states only.
	ReasonSleepHeld = "SleepHeld"
	// ReasonSleepDisabled: somebody disabled all deeper states.
	ReasonSleepDisabled = "SleepDisabled"
	// ReasonSleepMissing: the kernel knows no deeper state.
	ReasonSleepMissing = "SleepMissing"
	// ReasonSleepShallow: CPUs sleep in shallow states only, and nothing says why.
	ReasonSleepShallow = "SleepShallow"
	// ReasonFixedClock: the CPUs run at their highest clock whatever the load.
	ReasonFixedClock = "FixedClock"
	// ReasonVhostMissing: QEMU moves each packet itself.
	ReasonVhostMissing = "VhostMissing"
	// ReasonVhostUnused: QEMU moves each packet of a VM itself, on a node with vhost.
	ReasonVhostUnused = "VhostUnused"
	// ReasonOtherWriter: another program places threads or interrupts on CPUs, too.
	ReasonOtherWriter = "OtherWriter"
	// ReasonPollingThreads: threads keep CPUs busy, with or without work.
	ReasonPollingThreads = "PollingThreads"
	// ReasonHaltPolling: KVM keeps CPUs polling for long before they may sleep.
	ReasonHaltPolling = "HaltPolling"
	// ReasonIdleNode: a node has no VM.
	ReasonIdleNode = "IdleNode"
	// ReasonEmulatedCard: a network card is emulated.
	ReasonEmulatedCard = "EmulatedCard"
	// ReasonEmulatedDisk: a disk's controller is emulated.
	ReasonEmulatedDisk = "EmulatedDisk"
	// ReasonLocalDisk: a VM writes much to disks that end with its pod.
	ReasonLocalDisk = "LocalDisk"
	// ReasonOneQueue: the only queue of a busy VM's network card is full.
	ReasonOneQueue = "OneQueue"
	// ReasonIdleVM: a VM has done nothing for a day or longer.
	ReasonIdleVM = "IdleVM"
	// ReasonCPULimit: the VM's own CPU limit throttles it.
	ReasonCPULimit = "CPULimit"
)
