package v1alpha1

// VCPUPin binds one vCPU to CPUs.
type VCPUPin struct {
	// vcpu is the index of the vCPU in the VM, from 0.
	// +kubebuilder:validation:Minimum=0
	VCPU int32 `json:"vcpu"`
	// cpus that the vCPU's thread may run on, in the kernel's list form: always
	// all siblings of one or more physical cores.
	// +kubebuilder:validation:Pattern=`^([0-9]+(-[0-9]+)?)(,[0-9]+(-[0-9]+)?)*$`
	// +kubebuilder:validation:MaxLength=32768
	CPUs string `json:"cpus"`
}

// AffinityAction restricts the CPUs of a VM's threads. Threads that it does
// not name stay unrestricted.
type AffinityAction struct {
	// vcpus to bind.
	// +listType=map
	// +listMapKey=vcpu
	// +kubebuilder:validation:MaxItems=512
	// +optional
	VCPUs []VCPUPin `json:"vcpus,omitempty"`
	// emulatorCPUs are the CPUs of QEMU's main thread, in the kernel's list
	// form. Empty: unrestricted.
	// +kubebuilder:validation:Pattern=`^(([0-9]+(-[0-9]+)?)(,[0-9]+(-[0-9]+)?)*)?$`
	// +kubebuilder:validation:MaxLength=32768
	// +optional
	EmulatorCPUs string `json:"emulatorCPUs,omitempty"`
	// ioThreadCPUs are the CPUs of QEMU's IO threads. Empty: unrestricted.
	// +kubebuilder:validation:Pattern=`^(([0-9]+(-[0-9]+)?)(,[0-9]+(-[0-9]+)?)*)?$`
	// +kubebuilder:validation:MaxLength=32768
	// +optional
	IOThreadCPUs string `json:"ioThreadCPUs,omitempty"`
	// vhostCPUs are the CPUs of the VM's vhost workers. Empty: unrestricted.
	// +kubebuilder:validation:Pattern=`^(([0-9]+(-[0-9]+)?)(,[0-9]+(-[0-9]+)?)*)?$`
	// +kubebuilder:validation:MaxLength=32768
	// +optional
	VhostCPUs string `json:"vhostCPUs,omitempty"`
}
