package v1alpha1

// Pool is the kind of work that a VM shares its cores with.
// +kubebuilder:validation:Enum=Network;Compute
type Pool string

const (
	// PoolNetwork has VMs whose packets must not wait for somebody's time slice.
	PoolNetwork Pool = "Network"
	// PoolCompute has all others.
	PoolCompute Pool = "Compute"
)

// PoolCores are the cores of a node's two pools, which have no core in common.
type PoolCores struct {
	// networkCPUs are those of pool Network, in the kernel's list form: all siblings of
	// one or more physical cores.
	// +kubebuilder:validation:Pattern=`^([0-9]+(-[0-9]+)?)(,[0-9]+(-[0-9]+)?)*$`
	// +kubebuilder:validation:MaxLength=32768
	NetworkCPUs string `json:"networkCPUs"`
	// computeCPUs are those of pool Compute.
	// +kubebuilder:validation:Pattern=`^([0-9]+(-[0-9]+)?)(,[0-9]+(-[0-9]+)?)*$`
	// +kubebuilder:validation:MaxLength=32768
	ComputeCPUs string `json:"computeCPUs"`
}
