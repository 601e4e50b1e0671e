package linux

import (
	"encoding/json"
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// kubeletState is where the CPU manager notes whose CPUs are whose.
	kubeletState = "/var/lib/kubelet/cpu_manager_state"
	// policyStatic is the CPU manager's policy that gives containers CPUs of their own.
	policyStatic = "static"
	// maxKubeletFile is the size of a file of the kubelet that is still read, in bytes.
	maxKubeletFile = 1 << 20
)

// kubeletConfigs are where distributions keep the kubelet's configuration: kubeadm,
// OpenShift, and two of EKS. The first that is one counts.
func kubeletConfigs() []string {
	return []string{
		"/var/lib/kubelet/config.yaml",
		"/etc/kubernetes/kubelet.conf",
		"/etc/kubernetes/kubelet/config.json",
		"/etc/kubernetes/kubelet/kubelet-config.json",
	}
}

// kubeletCPUs is what the kubelet's own files say of CPUs. What they do not say, or
// what cannot be read, is empty.
type kubeletCPUs struct {
	// static is true when the CPU manager's policy is static.
	static bool
	// exclusive CPUs are those of single containers.
	exclusive units.CPUSet
	// reserved CPUs are kept for the system.
	reserved units.CPUSet
}

// kubelet reads the kubelet's files on the node.
func (h *Host) kubelet() kubeletCPUs {
	var found kubeletCPUs
	root, err := h.openNodeRoot()
	if err != nil {
		return found
	}
	defer root.close()
	policy := ""
	for _, path := range kubeletConfigs() {
		content, err := root.read(path, maxKubeletFile)
		if err != nil {
			continue
		}
		config, err := parseKubeletConfig(content)
		if err == nil {
			policy, found.reserved = config.policy, config.reserved
			break
		}
	}
	if content, err := root.read(kubeletState, maxKubeletFile); err == nil {
		if state, err := parseCPUManagerState(content); err == nil {
			policy, found.exclusive = state.policy, state.exclusive
		}
	}
	found.static = policy == policyStatic
	return found
}

// cpuManagerState is what of the CPU manager's state counts here.
type cpuManagerState struct {
	policy    string
	exclusive units.CPUSet
}

// parseCPUManagerState reads the CPU manager's checkpoint. One list of CPUs that cannot
// be read makes all of it unreadable.
func parseCPUManagerState(content []byte) (cpuManagerState, error) {
	var file struct {
		PolicyName string                       `json:"policyName"`
		Entries    map[string]map[string]string `json:"entries"`
	}
	if err := json.Unmarshal(content, &file); err != nil {
		return cpuManagerState{}, fmt.Errorf("state of kubelet's CPU manager: %w", err)
	}
	if file.PolicyName == "" {
		return cpuManagerState{}, fmt.Errorf("state of kubelet's CPU manager names no policy: %w", errMalformed)
	}
	state := cpuManagerState{policy: file.PolicyName}
	for pod, containers := range file.Entries {
		for container, list := range containers {
			cpus, err := units.ParseCPUSet(list)
			if err != nil {
				return cpuManagerState{}, fmt.Errorf("state of kubelet's CPU manager: container %.64q of pod %.64q: %w", container, pod, err)
			}
			state.exclusive = state.exclusive.Union(cpus)
		}
	}
	return state, nil
}

// kubeletConfig is what of the kubelet's configuration counts here.
type kubeletConfig struct {
	policy   string
	reserved units.CPUSet
}

// parseKubeletConfig reads a KubeletConfiguration, as YAML or JSON.
func parseKubeletConfig(content []byte) (kubeletConfig, error) {
	var file struct {
		Kind               string `json:"kind"`
		CPUManagerPolicy   string `json:"cpuManagerPolicy"`
		ReservedSystemCPUs string `json:"reservedSystemCPUs"`
	}
	if err := yaml.Unmarshal(content, &file); err != nil {
		return kubeletConfig{}, fmt.Errorf("kubelet's configuration: %w", err)
	}
	// The same path holds the credentials of a kubelet of kubeadm.
	if file.Kind != "KubeletConfiguration" {
		return kubeletConfig{}, fmt.Errorf("kubelet's configuration is of kind %.64q: %w", file.Kind, errMalformed)
	}
	reserved, err := units.ParseCPUSet(file.ReservedSystemCPUs)
	if err != nil {
		return kubeletConfig{}, fmt.Errorf("kubelet's configuration: reservedSystemCPUs: %w", err)
	}
	return kubeletConfig{policy: file.CPUManagerPolicy, reserved: reserved}, nil
}
