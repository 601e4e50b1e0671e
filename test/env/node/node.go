package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/test/env/images"
	"github.com/joulevirt/joulevirt/test/env/node/internal/sandbox"
	"github.com/joulevirt/joulevirt/test/internal/proc"
)

const (
	// partTimeout bounds the start of one program of a node, and of an emulated machine. A busy
	// machine is far below it.
	partTimeout = 10 * time.Minute
	// joinTimeout bounds what a node takes from its kubelet's start until
	// virt-handler offers it to VMs, on a busy machine.
	joinTimeout = 10 * time.Minute
	// kubeletPort is the default one.
	kubeletPort = "10250"
)

// NodeOptions describe a node.
type NodeOptions struct {
	// Labels are added to the Node.
	Labels map[string]string
	// Kubelet has fields of the KubeletConfiguration that replace ours, such as
	// "cpuManagerPolicy": "static".
	Kubelet map[string]any
	// Kernel has the node be an emulated machine with this kernel, cgroup v2 and
	// KVM. Empty: it has namespaces of this machine.
	Kernel Kernel
	// Programs of this machine that Run finds on the node by Program(NAME).
	Programs map[string]string
}

// Node is a real node.
type Node struct {
	// Name is that of the Node object.
	Name string

	env     *Environment
	number  int
	options NodeOptions
	sandbox sandbox.Config
	config  string // the sandbox's, a file
	// archives are what the node imports, as it sees them.
	archives []string

	machine, containerd, kubelet, proxy *proc.Process
}

// Address is the node's own.
func (n *Node) Address() netip.Addr { return n.env.network.node(n.number) }

// startMachine starts a node's namespaces and containerd, with all images.
func (e *Environment) startMachine(ctx context.Context, options NodeOptions) (*Node, error) {
	n, err := e.newNode(options)
	if err != nil {
		return nil, err
	}
	if err := n.boot(ctx); err != nil {
		return nil, fmt.Errorf("node %s: %w", n.Name, err)
	}
	if options.Kernel != "" {
		return n, e.network.routePods(n.number, func(to netip.Prefix, via netip.Addr) error {
			_, err := n.Run(context.Background(), "ip", "route", "replace", to.String(), "via", via.String())
			return err
		})
	}
	first, err := n.sandbox.PID()
	if err != nil {
		return nil, err
	}
	return n, e.network.attachNode(n.number, first)
}

func (e *Environment) newNode(options NodeOptions) (*Node, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	number := len(e.nodes) + 1
	if number > maxNodes {
		return nil, fmt.Errorf("an environment has at most %d nodes", maxNodes)
	}
	n := e.describeNode(fmt.Sprintf("node-%d", number), number, options, nil)
	e.nodes = append(e.nodes, n)
	return n, nil
}

// describeNode returns a node that imports images when it starts.
func (e *Environment) describeNode(name string, number int, options NodeOptions, imports []images.Image) *Node {
	n := &Node{Name: name, env: e, number: number, options: options}
	n.sandbox = sandbox.Config{
		HostName: name, Dir: filepath.Join(e.claim.dir, name),
		Group: groupPrefix(e.claim.number) + name, Hierarchies: e.hierarchies,
		Binds: map[string]string{},
	}
	if options.Kernel != "" {
		n.sandbox.Group, n.sandbox.Hierarchies = "", sandbox.UnifiedHierarchy()
	}
	for _, store := range e.images.all() {
		n.sandbox.Binds[store.name()] = store.dir
	}
	for name, path := range e.programs {
		n.sandbox.Binds[filepath.Join("bin", name)] = path
	}
	for name, path := range options.Programs {
		n.sandbox.Binds[filepath.Join("bin", name)] = path
	}
	for i, image := range imports {
		name := fmt.Sprintf("archive-%d.tar", i)
		n.sandbox.Binds[name] = image.Archive
		n.archives = append(n.archives, filepath.Join(sandbox.Run, name))
	}
	return n
}

// boot starts the node's namespaces and containerd and imports its archives.
func (n *Node) boot(ctx context.Context) error {
	if err := n.prepare(); err != nil {
		return err
	}
	if err := n.startSandbox(ctx); err != nil {
		return err
	}
	if err := n.waitSandbox(ctx); err != nil {
		return err
	}
	if err := n.startContainerd(ctx); err != nil {
		return err
	}
	for _, path := range n.archives {
		if err := n.importImages(ctx, path); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) startSandbox(ctx context.Context) (err error) {
	if n.options.Kernel != "" {
		return n.startEmulated(ctx)
	}
	n.machine, err = n.env.group.Start(n.Name, n.env.noded, "start", n.config)
	return err
}

func (n *Node) waitSandbox(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, partTimeout)
	defer cancel()
	return n.machine.WaitReady(ctx, func(context.Context) error { return n.sandbox.Ready() })
}

// join starts what makes the machine a node of the cluster and waits until it
// can run VMs.
func (n *Node) join(ctx context.Context) error {
	if err := n.startKubelet(ctx); err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	if err := n.startProxy(); err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	return n.WaitSchedulable(ctx)
}

// WhileUp returns a context that also ends with the node's first process. The cause has what that
// wrote last.
func (n *Node) WhileUp(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-n.machine.Done():
			cancel(n.machine.Failure())
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// WaitSchedulable waits until the node is Ready and virt-handler offers it to
// VMs.
func (n *Node) WaitSchedulable(ctx context.Context) error {
	return n.env.WaitFor(ctx, joinTimeout, "node "+n.Name+" can run VMs", func(ctx context.Context) error {
		select {
		case <-n.kubelet.Done():
			return fmt.Errorf("the kubelet has ended: see %s", n.kubelet.Log())
		default:
		}
		node := &corev1.Node{}
		if err := n.env.Client().Get(ctx, client.ObjectKey{Name: n.Name}, node); err != nil {
			return err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
				return fmt.Errorf("it is not Ready: %s", condition.Message)
			}
		}
		if node.Labels[kubevirtv1.NodeSchedulable] != "true" {
			return errors.New("virt-handler has not offered it yet")
		}
		return nil
	})
}

// Start starts a program in the node; its log is NODE-NAME.log.
func (n *Node) Start(name string, program string, args ...string) (*proc.Process, error) {
	return n.env.group.Start(n.Name+"-"+name, n.env.noded, append([]string{"enter", n.config, program}, args...)...)
}

// Run runs a program in the node's namespaces and returns its standard output, also when it fails.
func (n *Node) Run(ctx context.Context, program string, args ...string) (string, error) {
	var output, problems bytes.Buffer
	cmd := exec.CommandContext(ctx, n.env.noded, append([]string{"enter", n.config, program}, args...)...)
	cmd.Stdout, cmd.Stderr = &output, &problems
	if err := cmd.Run(); err != nil {
		return output.String(), fmt.Errorf("on node %s: %s %s: %w: %s", n.Name, program, strings.Join(args, " "), err, strings.TrimSpace(problems.String()))
	}
	return output.String(), nil
}

// Root is a path of the node as this machine reaches it.
func (n *Node) Root(elements ...string) (string, error) {
	first, err := n.sandbox.PID()
	if err != nil {
		return "", err
	}
	return filepath.Join(append([]string{fmt.Sprintf("/proc/%d/root", first)}, elements...)...), nil
}

func (n *Node) startContainerd(ctx context.Context) (err error) {
	n.containerd, err = n.Start("containerd", Program("containerd"), "--config="+filepath.Join(sandbox.Run, "etc", "containerd.toml"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, partTimeout)
	defer cancel()
	return n.containerd.WaitReady(ctx, n.askContainerd)
}

// askContainerd returns nil when containerd serves kubelets.
func (n *Node) askContainerd(ctx context.Context) error {
	_, err := n.Run(ctx, Program("ctr"), "version")
	return err
}

// startKubelet starts the kubelet and waits until it serves.
func (n *Node) startKubelet(ctx context.Context) error {
	machine := n.env.MachineAddress()
	kubeconfig, err := n.env.ComponentKubeconfig("kubelet-"+n.Name, "system:node:"+n.Name, machine, "system:nodes")
	if err != nil {
		return err
	}
	if err := n.copyToEtc(kubeconfig, "kubelet.kubeconfig"); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(n.etc(), "ca.crt"), n.env.CACert(), 0o644); err != nil {
		return fmt.Errorf("write the cluster's CA for node %s: %w", n.Name, err)
	}
	address := n.Address().String()
	var labels []string
	for key, value := range n.options.Labels {
		labels = append(labels, key+"="+value)
	}
	n.kubelet, err = n.Start("kubelet", Program("kubelet"),
		"--config="+filepath.Join(sandbox.Run, "etc", "kubelet.yaml"),
		"--kubeconfig="+filepath.Join(sandbox.Run, "etc", "kubelet.kubeconfig"),
		"--cert-dir=/var/lib/kubelet/pki",
		"--hostname-override="+n.Name,
		"--node-ip="+address,
		"--node-labels="+strings.Join(labels, ","),
		"--v=2")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, partTimeout)
	defer cancel()
	return n.kubelet.WaitReady(ctx, func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(address, kubeletPort))
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

func (n *Node) startProxy() error {
	kubeconfig, err := n.env.ComponentKubeconfig("kube-proxy-"+n.Name, "system:kube-proxy", n.env.MachineAddress())
	if err != nil {
		return err
	}
	if err := n.copyToEtc(kubeconfig, "kube-proxy.kubeconfig"); err != nil {
		return err
	}
	n.proxy, err = n.Start("kube-proxy", Program("kube-proxy"),
		"--kubeconfig="+filepath.Join(sandbox.Run, "etc", "kube-proxy.kubeconfig"),
		"--proxy-mode=nftables",
		"--hostname-override="+n.Name,
		"--cluster-cidr="+n.env.network.addresses.String(),
		// The node has its share of the machine's table: leave it alone.
		"--conntrack-max-per-core=0", "--conntrack-min=0",
		"--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0",
		"-v=2")
	return err
}

// RestartKubelet kills the kubelet and starts it anew.
func (n *Node) RestartKubelet(ctx context.Context) error {
	n.kubelet.Kill()
	return n.startKubelet(ctx)
}

// PauseKubelet stops the kubelet where it is until ResumeKubelet: what ends is not
// started anew meanwhile.
func (n *Node) PauseKubelet() error { return n.kubelet.SignalAll(syscall.SIGSTOP) }

// ResumeKubelet lets the kubelet go on.
func (n *Node) ResumeKubelet() error { return n.kubelet.SignalAll(syscall.SIGCONT) }

// RestartContainerd kills containerd and starts it anew. Containers go on.
func (n *Node) RestartContainerd(ctx context.Context) error {
	n.containerd.Kill()
	return n.startContainerd(ctx)
}

// Kill ends the node and all that runs on it at once, as a power cut would. Its
// Node object stays.
func (n *Node) Kill() {
	n.env.network.forget(n.number)
	n.machine.Kill()
}
