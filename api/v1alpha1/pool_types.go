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

// PoolPreference says which pool a VM counts to.
// +kubebuilder:validation:Enum=Auto;Network;Compute
type PoolPreference string

const (
	// PoolAuto leaves the choice to the planner, by what the VM does.
	PoolAuto PoolPreference = "Auto"
	// PoolAlwaysNetwork and PoolAlwaysCompute are what the owner knows of the VM.
	PoolAlwaysNetwork PoolPreference = "Network"
	PoolAlwaysCompute PoolPreference = "Compute"
)
