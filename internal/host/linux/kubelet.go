package linux

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// kubeletState is where the CPU manager stores whose CPUs are whose.
	kubeletState = "/var/lib/kubelet/cpu_manager_state"
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

// kubeletCPUs reads the kubelet's own files on the node: exclusive CPUs are those of single
// containers, reserved ones are kept for the system. What they do not say, or what cannot
// be read, is empty.
func (h *Host) kubeletCPUs() (exclusive, reserved units.CPUSet) {
	root, err := h.openNodeRoot()
	if err != nil {
		return exclusive, reserved
	}
	defer root.close()
	for _, path := range kubeletConfigs() {
		content, err := root.read(path, maxKubeletFile)
		if err != nil {
			continue
		}
		if reserved, err = reservedCPUs(content); err == nil {
			break
		}
	}
	if content, err := root.read(kubeletState, maxKubeletFile); err == nil {
		if cpus, err := exclusiveCPUs(content); err == nil {
			exclusive = cpus
		}
	}
	return exclusive, reserved
}

// exclusiveCPUs reads the CPU manager's checkpoint. One list of CPUs that cannot be read
// makes all of it unreadable.
func exclusiveCPUs(content []byte) (units.CPUSet, error) {
	var file struct {
		Entries map[string]map[string]string `json:"entries"`
	}
	if err := json.Unmarshal(content, &file); err != nil {
		return units.CPUSet{}, fmt.Errorf("state of kubelet's CPU manager: %w", err)
	}
	var exclusive units.CPUSet
	for pod, containers := range file.Entries {
		for container, list := range containers {
			cpus, err := units.ParseCPUSet(list)
			if err != nil {
				return units.CPUSet{}, fmt.Errorf("state of kubelet's CPU manager: container %.64q of pod %.64q: %w", container, pod, err)
			}
			exclusive = exclusive.Union(cpus)
		}
	}
	return exclusive, nil
}

// reservedCPUs reads a KubeletConfiguration, as YAML or JSON.
func reservedCPUs(content []byte) (units.CPUSet, error) {
	var file struct {
		Kind               string `json:"kind"`
		ReservedSystemCPUs string `json:"reservedSystemCPUs"`
	}
	if err := yaml.Unmarshal(content, &file); err != nil {
		return units.CPUSet{}, fmt.Errorf("kubelet's configuration: %w", err)
	}
	// The same path holds the credentials of a kubelet of kubeadm.
	if file.Kind != "KubeletConfiguration" {
		return units.CPUSet{}, fmt.Errorf("kubelet's configuration is of kind %.64q: %w", file.Kind, errMalformed)
	}
	reserved, err := units.ParseCPUSet(file.ReservedSystemCPUs)
	if err != nil {
		return units.CPUSet{}, fmt.Errorf("kubelet's configuration: reservedSystemCPUs: %w", err)
	}
	return reserved, nil
}

// nodeRoot is the node's own file system.
type nodeRoot struct{ fd int }

// openNodeRoot goes by the node's first process: no folder of the node needs to be
// mounted. The caller closes it.
func (h *Host) openNodeRoot() (nodeRoot, error) {
	path := filepath.Join(h.procRoot, "1/root")
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nodeRoot{}, fmt.Errorf("file system of the node at %s: %w", path, err)
	}
	return nodeRoot{fd: fd}, nil
}

func (r nodeRoot) close() { unix.Close(r.fd) }

// read returns the content of a plain file of at most limit bytes, by its absolute path on
// the node, whose symbolic links stay on the node. It never waits, not even for a pipe.
func (r nodeRoot) read(path string, limit int64) ([]byte, error) {
	fd, err := unix.Openat2(r.fd, path, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, fmt.Errorf("%s of the node: %w", path, err)
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s of the node is not a plain file: %w", path, errors.Join(err, errMalformed))
	}
	content, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, fmt.Errorf("%s of the node: %w", path, err)
	}
	if int64(len(content)) > limit {
		return nil, fmt.Errorf("%s of the node is longer than %d bytes", path, limit)
	}
	return content, nil
}
