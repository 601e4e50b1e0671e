// Package nodevm is a node with real KVM inside an emulated machine: QEMU emulates AMD's
// virtualization, so that Debian's kernel in it runs a guest under KVM, with vhost-net, in
// the network namespace of a pod. See docs/design/tests-and-simulator.md for what that can and cannot
// show.
package nodevm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/test/internal/proc"
	"github.com/joulevirt/joulevirt/test/nodevm/load"
	"github.com/joulevirt/joulevirt/test/nodevm/wire"
)

// Options of a node.
type Options struct {
	// Programs are main packages of this module that the node has in /usr/bin, by their
	// names there, and GuestPrograms those of the guest.
	Programs, GuestPrograms map[string]string
	// MemoryMiB of the node; 0: enough for it and its guest.
	MemoryMiB int
	// Slowness is how many times slower than this machine's the node's clocks run until
	// Slower is called; 0: as the package chooses.
	Slowness int
	// Restarted is called when the node was booted anew, because its kernel panicked or for
	// slower clocks, before its guest is; nil: nothing is to be done.
	Restarted func(context.Context) error
	// Log gets a line for each thing that is worth to be known.
	Log func(format string, args ...any)
}

// Node is a running one.
type Node struct {
	options Options
	folder  string
	group   *proc.Group
	process *proc.Process
	client  *rpc.Client
	made    image
	boot    wire.Boot
	booted  bool
	// slowness is how many times slower than this machine's the node's clocks run.
	slowness int
	// runs of loads so far.
	runs uint32
	// Retries is how often a part of a test was done again because the guest died, and
	// retried how often with clocks as they are.
	Retries, retried int
}

const (
	defaultMemoryMiB = 2048
	// bootTimeout is several times what a boot takes on two busy cores.
	bootTimeout = 3 * time.Minute
	// niceness of the node: packets that are sent late because something else has the CPUs
	// come in bunches by themselves.
	niceness = "-20"
)

// Start builds and boots a node. ctx bounds the start only; call Stop to end it.
func Start(ctx context.Context, o Options) (*Node, error) {
	folder, err := os.MkdirTemp("", "joulevirt-nodevm-")
	if err != nil {
		return nil, fmt.Errorf("create a folder for the node VM: %w", err)
	}
	n := &Node{options: o, folder: folder, group: proc.NewGroup(folder), slowness: cmp.Or(o.Slowness, defaultSlowness)}
	if err := n.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start the node VM: %w", err), n.Stop())
	}
	return n, nil
}

func (n *Node) start(ctx context.Context) error {
	var err error
	if n.made, err = build(ctx, n.folder, n.options); err != nil {
		return err
	}
	return n.power(ctx)
}

// power boots the machine.
func (n *Node) power(ctx context.Context) error {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	socket := filepath.Join(n.folder, "control.sock")
	if err := errors.Join(remove(socket), remove(n.consolePath())); err != nil {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	defer listener.Close()
	if _, err := os.Stat(slowClock); err != nil {
		return fmt.Errorf("slow clocks (install libfaketime): %w", err)
	}
	niced := append([]string{
		"-n", niceness, "/usr/bin/env", "LD_PRELOAD=" + slowClock, fmt.Sprintf("FAKETIME=+0 x%g", 1/float64(n.slowness)), qemu,
	}, n.arguments(n.made, socket)...)
	if n.process, err = n.group.StartSession("node", "/usr/bin/nice", niced...); err != nil {
		return err
	}
	if err := weigh(n.process.PID); err != nil {
		return err
	}
	deadline, _ := ctx.Deadline()
	if err := listener.(*net.UnixListener).SetDeadline(deadline); err != nil {
		return err
	}
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	n.client = jsonrpc.NewClient(conn)
	err = n.process.WaitReady(ctx, func(context.Context) error {
		console, err := os.ReadFile(n.consolePath())
		if err == nil && !strings.Contains(string(console), "READY") {
			err = errors.New("it does not say that it is ready")
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := favour(n.process.PID); err != nil {
		return err
	}
	n.log("the node booted in %.1f s", time.Since(begin).Seconds())
	return nil
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// weigh gives the process's session the weight that niceness asks for: Linux may weigh
// sessions first, and processes only within them.
func weigh(pid int) error {
	err := os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", pid), []byte(niceness), 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("weigh the node VM's session: %w", err)
	}
	return nil
}

// favour lets the emulated CPUs run when they want to, whatever else this machine does, and
// before them the main thread, which ticks the emulated clocks. All threads are there already:
// they would inherit it.
func favour(pid int) error {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return fmt.Errorf("threads of the node VM: %w", err)
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			return fmt.Errorf("threads of the node VM: %w", err)
		}
		real := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1}
		if id == pid {
			real.Priority = 2
		}
		if err := unix.SchedSetAttr(id, &real, 0); err != nil {
			return fmt.Errorf("schedule the node VM's threads: %w", err)
		}
	}
	return nil
}

func (n *Node) log(format string, args ...any) {
	if n.options.Log != nil {
		n.options.Log(format, args...)
	}
}

func (n *Node) arguments(made image, socket string) []string {
	memory := n.options.MemoryMiB
	if memory == 0 {
		memory = defaultMemoryMiB
	}
	return []string{
		"-accel", "tcg,thread=multi,tb-size=512", "-machine", "q35", "-cpu", "max,la57=off", "-smp", "2", "-m", fmt.Sprint(memory),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "file:" + n.consolePath(),
		"-kernel", made.kernel, "-initrd", made.initramfs,
		"-append", "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable no_timer_check " + load.Environment,
		"-device", "virtio-serial-pci", "-chardev", "socket,id=control,path=" + socket,
		"-device", "virtserialport,chardev=control,name=control",
		"-netdev", "user,id=outside", "-device", "virtio-net-pci,netdev=outside,romfile=",
	}
}

// Stop ends the node and all that runs in it.
func (n *Node) Stop() error {
	if n.client != nil {
		_ = n.client.Close() // it ends with the machine
	}
	n.group.Stop()
	return os.RemoveAll(n.folder)
}

// Call asks the node, and waits for its answer. ErrNodeSilent when meanwhile it does not even
// say that it lives.
func (n *Node) Call(ctx context.Context, method string, args, answer any) error {
	call := n.client.Go(method, args, answer, make(chan *rpc.Call, 1))
	looks := time.NewTicker(n.by(silence))
	defer looks.Stop()
	var alive *rpc.Call
	for {
		select {
		case <-call.Done:
			if call.Error != nil {
				return fmt.Errorf("%s: %w", method, call.Error)
			}
			return nil
		case <-n.process.Done():
			return fmt.Errorf("%s: the node VM ended: see its console %s", method, n.console())
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", method, context.Cause(ctx))
		case <-looks.C:
			if alive != nil && len(alive.Done) == 0 {
				return fmt.Errorf("%s: %w", method, ErrNodeSilent)
			}
			alive = n.client.Go("Machine.Alive", wire.None{}, &wire.None{}, make(chan *rpc.Call, 1))
		}
	}
}

func (n *Node) consolePath() string { return filepath.Join(n.folder, "console") }

func (n *Node) console() string {
	text, err := os.ReadFile(n.consolePath())
	if err != nil {
		return err.Error()
	}
	const most = 4000
	return string(text[max(0, len(text)-most):])
}

// Ask asks the guest, which has so long to answer. ErrGuestSilent when it does not.
func (n *Node) Ask(ctx context.Context, method string, args, answer any, within time.Duration) error {
	params, err := json.Marshal(args)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := n.Call(ctx, "Node.Ask", wire.Question{Method: method, Params: params, Within: within}, &raw); err != nil {
		if strings.Contains(err.Error(), wire.GuestSilent) {
			return errors.Join(ErrGuestSilent, err)
		}
		return err
	}
	return json.Unmarshal(raw, answer)
}
