// Package members runs the VMs of traffic groups for tests: launcher pods are
// real network namespaces with real addresses on a node's bridge, and a real
// HTTP server in each answers with the VM's name. There is no guest, so that
// dozens fit on a small machine; a sleeping process stands for QEMU. Kubernetes
// and KubeVirt treat the pods as any others: they are started, restarted,
// migrated and ended by the real controllers.
package members

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/test/cluster/handler"
	"github.com/joulevirt/joulevirt/test/dataplane/node"
	"github.com/joulevirt/joulevirt/test/internal/proc"
)

// Port is where all members serve HTTP.
const Port = 8080

// linger is how long a member that is stopped serves on, as a guest does that
// shuts down: what a node takes to stop sending it new connections.
const linger = time.Second

// Fleet is the members of all nodes of a test.
type Fleet struct {
	network *node.Node
	// qemu runs what stands for QEMU.
	qemu *proc.Group

	mu      sync.Mutex
	members []*Member
	known   map[types.UID]sample
}

// NewFleet returns a Fleet whose pods are attached to a node's network. Their
// logs go to the folder dir.
func NewFleet(network *node.Node, dir string) *Fleet {
	return &Fleet{network: network, qemu: proc.NewGroup(dir), known: map[types.UID]sample{}}
}

// Close ends all members at once.
func (f *Fleet) Close() {
	f.qemu.Stop()
	for _, m := range f.all() {
		m.close()
	}
}

// Runtimes runs the launcher pods of the named nodes, for handler.Options.
func (f *Fleet) Runtimes(nodes ...string) map[string]handler.Runtime {
	all := map[string]handler.Runtime{}
	for _, name := range nodes {
		all[name] = f
	}
	return all
}

// StartPod implements handler.Runtime.
func (f *Fleet) StartPod(_ context.Context, pod *corev1.Pod) (handler.Sandbox, error) {
	network, err := f.network.Attach()
	if err != nil {
		return nil, err
	}
	m := &Member{
		fleet: f, network: network, server: newServer(),
		VMI: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Annotations[kubevirtv1.DomainAnnotation]},
		Pod: pod.Name, UID: pod.UID, Node: pod.Spec.NodeName,
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.members = append(f.members, m)
	return m, nil
}

// Member returns the member of a VM that serves; nil when there is none. When
// the VM migrates it is the one that was started last.
func (f *Fleet) Member(vmi types.NamespacedName) *Member {
	for _, m := range slices.Backward(f.all()) {
		if m.VMI == vmi && m.QEMUPID() != 0 {
			return m
		}
	}
	return nil
}

func (f *Fleet) all() []*Member {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.members)
}

func (f *Fleet) forget(m *Member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.members = slices.DeleteFunc(f.members, func(other *Member) bool { return other == m })
	delete(f.known, m.UID)
}

// Member is one launcher pod and, once it is started, the VM in it. It
// implements handler.Sandbox.
type Member struct {
	// VMI, Pod and UID of the pod, and Node, say who and where it is.
	VMI  types.NamespacedName
	Pod  string
	UID  types.UID
	Node string

	fleet   *Fleet
	network *node.Pod
	server  *server

	mu      sync.Mutex
	qemu    *proc.Process
	stopped bool
}

// IP implements handler.Sandbox.
func (m *Member) IP() string { return m.network.Address().String() }

// LauncherPID implements handler.Sandbox: there is no launcher.
func (m *Member) LauncherPID() int { return 0 }

// QEMUPID implements handler.Sandbox; 0 also when the member was stopped.
func (m *Member) QEMUPID() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.qemu == nil || m.stopped {
		return 0
	}
	return m.qemu.PID
}

// StartDomain implements handler.Sandbox: the member serves from now on.
func (m *Member) StartDomain(_ context.Context, vmi *kubevirtv1.VirtualMachineInstance) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.stopped:
		return errors.New("the pod is stopped")
	case m.qemu != nil:
		return nil
	}
	listener, err := m.network.Listen(Port)
	if err != nil {
		return fmt.Errorf("serve as VM %s/%s: %w", vmi.Namespace, vmi.Name, err)
	}
	name := "qemu-" + strings.ReplaceAll(m.network.Address().String(), ".", "-")
	if m.qemu, err = m.fleet.qemu.Start(name, "/usr/bin/sleep", "infinity"); err != nil {
		_ = listener.Close()
		return err
	}
	m.server.start(listener, vmi.Name)
	return nil
}

// Stop implements handler.Sandbox: the guest serves on for a moment, answers
// what was asked and ends.
func (m *Member) Stop(ctx context.Context) error {
	m.mu.Lock()
	started := m.qemu != nil && !m.stopped
	m.stopped = true
	m.mu.Unlock()
	if started {
		m.server.drain(ctx, linger)
	}
	m.close()
	return nil
}

// Counters reads what went through the pod's network device.
func (m *Member) Counters() (node.Counters, error) { return m.network.Counters() }

// close ends what is left, without a farewell. It is idempotent.
func (m *Member) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped = true
	m.server.reset()
	if m.qemu != nil {
		m.qemu.Kill()
	}
	m.network.Close()
	m.fleet.forget(m)
}
