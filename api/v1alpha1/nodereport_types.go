package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PowerSource is where a figure of power comes from.
// A word of a newer agent passes: or its whole report would be refused.
// +kubebuilder:validation:Pattern=`^[A-Za-z]+$`
// +kubebuilder:validation:MaxLength=64
type PowerSource string

const (
	// PowerNone means that nothing measures the node.
	PowerNone PowerSource = "None"
	// PowerPrometheus means Kepler or another exporter, through Prometheus.
	PowerPrometheus PowerSource = "Prometheus"
	// PowerRAPL means the node's own energy counters.
	PowerRAPL PowerSource = "RAPL"
	// PowerModel means that the figure is modelled, not measured.
	PowerModel PowerSource = "Model"
)

// Measures is true for meters: only they prove a saving.
func (s PowerSource) Measures() bool { return s == PowerPrometheus || s == PowerRAPL }

// PowerScope is the part of a node that a figure of power covers. Figures of
// different scopes are not comparable.
// A word of a newer agent passes: or its whole report would be refused.
// +kubebuilder:validation:Pattern=`^[A-Za-z]+$`
// +kubebuilder:validation:MaxLength=64
type PowerScope string

const (
	// PowerScopePackage is all CPU packages, without memory that is counted
	// apart.
	PowerScopePackage PowerScope = "Package"
	// PowerScopePlatform is the whole machine.
	PowerScopePlatform PowerScope = "Platform"
)

// CoreGroup is the physical cores that share a last-level cache. Grouping keeps
// the report of a node with 512 cores within its size.
type CoreGroup struct {
	// cores are, for each physical core, its sibling CPUs in the kernel's list
	// form, such as "2,66".
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4096
	// +kubebuilder:validation:items:MaxLength=128
	Cores []string `json:"cores"`
	// package that the cores are in.
	// +optional
	Package int32 `json:"package"`
	// numaNode that the cores are in.
	// +optional
	NUMANode int32 `json:"numaNode"`
	// llc numbers the last-level cache that the cores share.
	// +optional
	LLC int32 `json:"llc"`
	// class of the cores. Absent: the node's cores are all alike.
	// +optional
	Class CoreClass `json:"class,omitempty"`
}

// CoreClass is what a core was built for.
// A word of a newer agent passes: or its whole report would be refused.
// +kubebuilder:validation:Pattern=`^[A-Za-z]+$`
// +kubebuilder:validation:MaxLength=64
type CoreClass string

const (
	// CorePerformance is a core that was built for speed.
	CorePerformance CoreClass = "Performance"
	// CoreEfficiency is a core that was built to use little energy.
	CoreEfficiency CoreClass = "Efficiency"
)

// Clocks are how fast the node's CPUs may run.
type Clocks struct {
	// governor that the kernel sets them by, such as schedutil.
	// A word of a newer agent passes.
	// +kubebuilder:validation:Pattern=`^[A-Za-z_-]+$`
	// +kubebuilder:validation:MaxLength=64
	Governor string `json:"governor"`
	// followLoad is true when a CPU that is used more runs faster.
	// +optional
	FollowLoad bool `json:"followLoad"`
	// lowestMegahertz is the lowest clock that the governor may ask for.
	// +kubebuilder:validation:Minimum=0
	// +optional
	LowestMegahertz int32 `json:"lowestMegahertz,omitempty"`
	// highestMegahertz is the highest clock, which a CPU may reach while few work.
	// +kubebuilder:validation:Minimum=0
	// +optional
	HighestMegahertz int32 `json:"highestMegahertz,omitempty"`
	// baseMegahertz is the clock that all CPUs reach at once. Absent: not known.
	// +kubebuilder:validation:Minimum=0
	// +optional
	BaseMegahertz int32 `json:"baseMegahertz,omitempty"`
}

// NIC is a network card and where its interrupts are handled.
type NIC struct {
	// numaNode that the card is attached to.
	// +optional
	NUMANode int32 `json:"numaNode"`
	// interruptCPUs handle the interrupts of its queues, in the kernel's list form.
	// +optional
	InterruptCPUs string `json:"interruptCPUs,omitempty"`
}

// Topology is the shape of a node's CPUs.
type Topology struct {
	// coreGroups hold every online physical core once.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +optional
	CoreGroups []CoreGroup `json:"coreGroups,omitempty"`
	// takenCPUs take no pins, in the kernel's list form: CPUs that the kernel isolates
	// (isolcpus), that the kubelet reserves for the system (reservedSystemCPUs), or that its
	// CPU manager gave to single containers.
	// +optional
	TakenCPUs string `json:"takenCPUs,omitempty"`
	// deepestIdleState is the name of the deepest state that the first CPU may sleep in, such
	// as C6. Absent: not known.
	// +optional
	DeepestIdleState string `json:"deepestIdleState,omitempty"`
	// clocks of the first CPU. Absent: not known.
	// +optional
	Clocks *Clocks `json:"clocks,omitempty"`
	// nics are the network cards that have interrupts of their own.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	NICs []NIC `json:"nics,omitempty"`
	// cpuModel is the processor's name.
	// +optional
	CPUModel string `json:"cpuModel,omitempty"`
	// nested is true when the node is itself a VM: it has no energy counters
	// and steal under-reports.
	// +optional
	Nested bool `json:"nested"`
}

// Capability is something that a lever or a measurement needs of the node.
type Capability struct {
	// name of the capability, such as SchedSlice.
	Name string `json:"name"`
	// available is true when the node has it.
	// +optional
	Available bool `json:"available"`
	// message says what is missing, when it is.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Message string `json:"message,omitempty"`
}

// Power is a coarse figure of the power that a node draws.
type Power struct {
	// source of the figure.
	Source PowerSource `json:"source"`
	// scope is the part of the node that the figure covers. Absent when there is
	// no figure.
	// +optional
	Scope PowerScope `json:"scope,omitempty"`
	// watts, rounded. Absent when the source is None.
	// +optional
	Watts *int64 `json:"watts,omitempty"`
	// measuredAt is when the figure was true.
	// +optional
	MeasuredAt *metav1.Time `json:"measuredAt,omitempty"`
}

// NodeReportStatus is what the agent of a node found. It is written on change
// or every five minutes.
type NodeReportStatus struct {
	// kernelVersion of the node.
	// +optional
	KernelVersion string `json:"kernelVersion,omitempty"`
	// reportedAt is when this was written.
	// +optional
	ReportedAt *metav1.Time `json:"reportedAt,omitempty"`
	// ratesAddress is the host:port where the agent serves /v1/rates.
	// +optional
	RatesAddress string `json:"ratesAddress,omitempty"`
	// topology of the node's CPUs.
	// +optional
	Topology Topology `json:"topology,omitzero"`
	// sleep of the CPUs. Absent: not known, or not yet.
	// +optional
	Sleep *Sleep `json:"sleep,omitempty"`
	// otherWriters are the commands of processes that place threads or interrupts on CPUs too, such as
	// irqbalance, by their names.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	OtherWriters []string `json:"otherWriters,omitempty"`
	// pollingThreads of DPDK, each of which keeps a CPU busy, with or without work.
	// +kubebuilder:validation:Minimum=0
	// +optional
	PollingThreads int32 `json:"pollingThreads,omitempty"`
	// capabilities that levers and measurements need.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Capabilities []Capability `json:"capabilities,omitempty"`
	// power that the node draws.
	// +optional
	Power Power `json:"power,omitzero"`
	// vms is the number of running VMs found.
	// +optional
	VMs int32 `json:"vms"`
	// conditions: Ready, MeterAvailable.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Conditions and reasons of a NodeReport.
const (
	// ConditionMeterAvailable is True when the node's power is measured; of an EnergyPolicy,
	// that of all nodes that it governs.
	ConditionMeterAvailable = "MeterAvailable"

	// ReasonSampling: the agent samples the node.
	ReasonSampling = "Sampling"
	// ReasonSamplingFailed: the last round of samples failed.
	ReasonSamplingFailed = "SamplingFailed"
	// ReasonMeterFound: the node has readable energy counters.
	ReasonMeterFound = "MeterFound"
	// ReasonNoMatchers: nodes are metered, and prometheus.matchers do not say by whom.
	ReasonNoMatchers = "NoMatchers"
	// ReasonMeterLost: no meter knows the node's power any more, and one did within a day.
	ReasonMeterLost = "MeterLost"
	// ReasonNoMeter: the node has no readable energy counters.
	ReasonNoMeter = "NoMeter"
)

// NodeReport is what the agent of a node found out about it. It has the
// node's name and goes with the node.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=nrep,categories={joulevirt}
// +kubebuilder:printcolumn:name="VMs",type=integer,JSONPath=`.status.vms`
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.status.power.source`
// +kubebuilder:printcolumn:name="Watts",type=integer,JSONPath=`.status.power.watts`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reported",type=date,JSONPath=`.status.reportedAt`
// +kubebuilder:printcolumn:name="Kernel",type=string,priority=1,JSONPath=`.status.kernelVersion`
// +kubebuilder:printcolumn:name="CPU-Model",type=string,priority=1,JSONPath=`.status.topology.cpuModel`
type NodeReport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// status is the agent's.
	// +optional
	Status NodeReportStatus `json:"status,omitempty"`
}

// NodeReportList is a list of NodeReports.
// +kubebuilder:object:root=true
type NodeReportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeReport `json:"items"`
}
