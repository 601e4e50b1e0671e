package v1alpha1

// Pool is the kind of work that a VM shares its cores with.
// +kubebuilder:validation:Enum=Network;Compute
type Pool string

const (
	// PoolNone: the VM is in neither pool.
	PoolNone Pool = ""
	// PoolNetwork has VMs whose packets must not wait for somebody's time slice.
	PoolNetwork Pool = "Network"
	// PoolCompute has all others.
	PoolCompute Pool = "Compute"
)
