// Command noded is the first process of the node VM: it builds the network of a pod, runs
// the pod's VM under KVM and other programs, makes traffic, and tells the node's counters.
// Calls come through a virtio-serial port.
package main

import (
	"fmt"
	"net/rpc"
	"os"
	"runtime"

	"github.com/joulevirt/joulevirt/test/nodevm/load"
	"github.com/joulevirt/joulevirt/test/nodevm/machine"
	"github.com/joulevirt/joulevirt/test/nodevm/wire"
)

func run() error {
	load.OwnMachine()
	err := machine.Boot([2]string{"tmpfs", "/run"}, [2]string{"debugfs", "/sys/kernel/debug"},
		[2]string{"cgroup2", "/sys/fs/cgroup"}, [2]string{"bpf", "/sys/fs/bpf"})
	if err != nil {
		return err
	}
	network, err := newNetwork()
	if err != nil {
		return fmt.Errorf("network: %w", err)
	}
	node := &Node{network: network}
	if err := network.in(network.sender, node.serve); err != nil {
		return err
	}
	server := rpc.NewServer()
	if err := server.RegisterName("Node", node); err != nil {
		return err
	}
	if err := server.RegisterName("Machine", machine.NewService()); err != nil {
		return err
	}
	fmt.Println("READY")
	return machine.ServePort("control", server)
}

// The main thread stays in the node's own network namespace: who compares with process 1
// looks at it.
func init() { runtime.LockOSThread() }

func main() {
	err := run()
	fmt.Fprintln(os.Stderr, "noded:", err)
	machine.PowerOff()
}

// serve opens the ports of the other end of the network.
func (n *Node) serve() error {
	return openPorts(&n.sink)
}

// Node answers calls.
type Node struct {
	network *network
	sink    sink
	guest   guest
	holder  holder
}

// Tally tells what came of a run that the guest sent.
func (n *Node) Tally(run uint32, tally *wire.Tally) error { //nolint:unparam // net/rpc wants it
	*tally = n.sink.Tally(run)
	return nil
}
