package node

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/joulevirt/joulevirt/test/env/node/internal/sandbox"
)

const (
	containerdSocket = "/run/containerd/containerd.sock"
	// clusterDomain and clusterDNS go into the resolv.conf of pods. Without them
	// virt-launcher refuses it. Nothing answers there.
	clusterDomain = "cluster.local"
	clusterDNS    = "10.96.0.10"
)

// etc is the folder of the node's configuration, Run/etc in the node.
func (n *Node) etc() string { return filepath.Join(n.sandbox.Dir, "etc") }

// Program is a program's path in a node: the node's own, and those of NodeOptions.
func Program(name string) string { return filepath.Join(sandbox.Run, "bin", name) }

// prepare writes the node's configuration and its store of images.
func (n *Node) prepare() error {
	kubelet, err := yaml.Marshal(n.kubeletConfig())
	if err != nil {
		return fmt.Errorf("encode the kubelet's configuration: %w", err)
	}
	network, err := json.Marshal(n.podNetwork())
	if err != nil {
		return fmt.Errorf("encode the pods' network: %w", err)
	}
	for name, text := range map[string]string{
		"kubelet.yaml":           string(kubelet),
		"containerd.toml":        n.env.containerdConfig(),
		"cni/10-bridge.conflist": string(network),
	} {
		path := filepath.Join(n.etc(), name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("make a folder of the node: %w", err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return fmt.Errorf("write the node's configuration: %w", err)
		}
	}
	n.sandbox.Binds["etc"] = n.etc()
	if n.config, err = n.sandbox.Write(); err != nil {
		return err
	}
	if n.env.images == nil { // the node that makes the first store
		return nil
	}
	if err := n.env.images.copyTo(n.containerdRoot()); err != nil {
		return fmt.Errorf("copy the store of images: %w", err)
	}
	return nil
}

// containerdRoot is what containerd has in /var/lib/containerd.
func (n *Node) containerdRoot() string { return filepath.Join(n.sandbox.Dir, "var-lib", "containerd") }

func (n *Node) copyToEtc(path, name string) error {
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(filepath.Join(n.etc(), name), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("copy %s to node %s: %w", name, n.Name, err)
	}
	return nil
}

func (n *Node) kubeletConfig() map[string]any {
	config := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"failCgroupV1":             false, // Kubernetes 1.36 refuses it by default
		"cgroupDriver":             "cgroupfs",
		"containerRuntimeEndpoint": "unix://" + containerdSocket,
		"authentication": map[string]any{
			"x509": map[string]any{"clientCAFile": filepath.Join(sandbox.Run, "etc", "ca.crt")},
		},
		"clusterDomain": clusterDomain,
		"clusterDNS":    []string{clusterDNS},
		"resolvConf":    "",
		"failSwapOn":    false,
		// Whatever fills the machine's disk, the node must not throw images away.
		"evictionHard": map[string]string{
			"memory.available": "100Mi",
			"nodefs.available": "0%", "imagefs.available": "0%",
			"nodefs.inodesFree": "0%", "imagefs.inodesFree": "0%",
		},
		"imageGCHighThresholdPercent": 100,
		"imageGCLowThresholdPercent":  99,
		"nodeStatusUpdateFrequency":   "5s",
		"syncFrequency":               "10s",
		"runtimeRequestTimeout":       "10m", // busy machines are slow, and nothing is wrong
	}
	maps.Copy(config, n.options.Kubelet)
	return config
}

// podNetwork configures the CNI plug-in bridge.
func (n *Node) podNetwork() map[string]any {
	return map[string]any{
		"cniVersion": "1.0.0", "name": "pods",
		"plugins": []any{map[string]any{
			"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
			"ipam": map[string]any{
				"type":   "host-local",
				"ranges": []any{[]any{map[string]string{"subnet": n.env.network.pods(n.number).String()}}},
				"routes": []any{map[string]string{"dst": "0.0.0.0/0"}},
			},
		}},
	}
}

// containerdConfig restricts OOM scores, since lowering them takes
// CAP_SYS_RESOURCE, which a machine may lack.
func (e *Environment) containerdConfig() string {
	return strings.NewReplacer(
		"SOCKET", containerdSocket, "PAUSE", e.set.Pause.Names[0], "CNI", filepath.Join(sandbox.Run, "etc", "cni"),
	).Replace(`version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "SOCKET"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "PAUSE"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = "runc"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        BinaryName = "/usr/sbin/runc"
        SystemdCgroup = false
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "CNI"
`)
}
