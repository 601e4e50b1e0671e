package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/joulevirt/joulevirt/test/nodevm/load"
	"github.com/joulevirt/joulevirt/test/nodevm/machine"
	"github.com/joulevirt/joulevirt/test/nodevm/wire"
)

const (
	controlSocket = "/tmp/guest.sock"
	cgroupRoot    = "/sys/fs/cgroup"
	// bootTimeout is several times what a guest takes, by the node's clock.
	bootTimeout = 20 * time.Second
	// consoleLines is how much of the guest's console is told.
	consoleLines = 25
)

// guest is the pod's VM.
type guest struct {
	mu     sync.Mutex
	cmd    *exec.Cmd
	ended  chan struct{}
	client *rpc.Client
}

// Files that the guest's console and QEMU's own words go to.
const consoleFile, wordsFile = "/tmp/guest-console", "/tmp/guest-qemu.log"

// console is what the guest printed, and then what QEMU had to say.
func console() []byte {
	text, _ := os.ReadFile(consoleFile)
	words, _ := os.ReadFile(wordsFile)
	return slices.Concat(text, words)
}

func (g *guest) pid() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cmd == nil {
		return 0
	}
	return g.cmd.Process.Pid
}

// Boot starts the guest and answers when its ports are open.
func (n *Node) Boot(b wire.Boot, booted *wire.Booted) error {
	begin := load.Clock()
	g := &n.guest
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cmd != nil {
		return errors.New("the guest runs already")
	}
	for _, path := range []string{controlSocket, consoleFile} {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	words, err := os.Create(wordsFile)
	if err != nil {
		return err
	}
	defer words.Close()
	listener, err := net.Listen("unix", controlSocket)
	if err != nil {
		return err
	}
	defer listener.Close()
	cgroup, err := podCgroup(b.PodUID)
	if err != nil {
		return err
	}
	defer cgroup.Close()
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return err
	}
	cmd := exec.Command("/usr/bin/qemu-system-x86_64", arguments(b, cpuModel(string(info)))...)
	cmd.Stdout, cmd.Stderr = words, words
	cmd.SysProcAttr = inCgroup(cgroup)
	if err := n.network.in(n.network.pod, cmd.Start); err != nil {
		return fmt.Errorf("start QEMU: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the state tells that it ended
		close(ended)
	}()
	g.cmd, g.ended = cmd, ended
	if err := g.meet(listener); err != nil {
		g.end()
		return fmt.Errorf("%s%w: console: %s", wire.GuestSilent, err, machine.Tail(console(), consoleLines))
	}
	booted.Seconds = (load.Clock() - begin).Seconds()
	return nil
}

// meet takes QEMU's connection, and waits until the guest says that it is ready.
func (g *guest) meet(listener net.Listener) error {
	if err := listener.(*net.UnixListener).SetDeadline(time.Now().Add(bootTimeout)); err != nil {
		return err
	}
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	g.client = jsonrpc.NewClient(conn)
	return machine.Poll(bootTimeout, func() error {
		if !bytes.Contains(console(), []byte("READY")) {
			return errors.New("not ready")
		}
		return nil
	})
}

// podCgroup makes that of a pod's container, as the kubelet would.
func podCgroup(uid string) (*os.File, error) {
	path := cgroupRoot
	for _, element := range []string{"", "kubepods", "besteffort", "pod" + uid} {
		path = filepath.Join(path, element)
		if err := os.MkdirAll(path, 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(path, "cgroup.subtree_control"), []byte("+cpu +cpuset +memory"), 0); err != nil {
			return nil, fmt.Errorf("controllers of %s: %w", path, err)
		}
	}
	path = filepath.Join(path, "compute")
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, err
	}
	return os.Open(path)
}

// mostMHz that Linux's 32 bits for an eighth of a processor's frequency hold.
const mostMHz = 8 * (1 << 32) / 1e6

// cpuModel is the guest's. A slow clock makes processors look fast: above mostMHz a guest's timer
// that is set in cycles would expire again and again before it is due, and the guest has to do
// with the other one, which takes more of an exit.
func cpuModel(cpuinfo string) string {
	for line := range strings.Lines(cpuinfo) {
		name, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(name) != "cpu MHz" {
			continue
		}
		if mhz, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil && mhz < mostMHz {
			return "max"
		}
	}
	return "max,-tsc-deadline"
}

func arguments(b wire.Boot, model string) []string {
	line := strings.Join([]string{
		"console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable no_timer_check", load.Environment,
		"guest.address=" + wire.GuestAddress + wire.NetworkBits, "guest.gateway=" + wire.SenderAddress, "guest.gatewaymac=" + wire.SenderMAC,
	}, " ")
	return []string{
		"-name", fmt.Sprintf("guest=%s_%s,debug-threads=on", b.Namespace, b.Name),
		"-machine", "pc,accel=kvm", "-cpu", model, "-smp", "1", "-m", strconv.Itoa(b.MemoryMiB),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "file:" + consoleFile,
		"-kernel", "/guest/vmlinuz", "-initrd", "/guest/initramfs", "-append", line,
		"-device", "virtio-serial-pci", "-chardev", "socket,id=control,path=" + controlSocket,
		"-device", "virtserialport,chardev=control,name=control",
		"-netdev", "tap,id=net,ifname=" + wire.Tap + ",script=no,downscript=no,vhost=on",
		"-device", "virtio-net-pci,netdev=net,romfile=,mac=" + wire.GuestMAC,
	}
}

// Ask passes a question on to the guest.
func (n *Node) Ask(q wire.Question, answer *json.RawMessage) error {
	n.guest.mu.Lock()
	client := n.guest.client
	n.guest.mu.Unlock()
	if client == nil {
		return errors.New(wire.GuestSilent + "it was not started")
	}
	call := client.Go(q.Method, q.Params, answer, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
	case <-time.After(q.Within):
		return fmt.Errorf("%sno answer to %s within %v", wire.GuestSilent, q.Method, q.Within)
	}
	if refused := rpc.ServerError(""); call.Error != nil && !errors.As(call.Error, &refused) {
		return fmt.Errorf("%s%s: %w", wire.GuestSilent, q.Method, call.Error)
	}
	return call.Error
}

// State reports how the guest is.
func (n *Node) State(_ wire.None, state *wire.GuestState) error {
	g := &n.guest
	text := console()
	state.Console = machine.Tail(text, consoleLines)
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "Kernel panic") {
			state.Panicked = strings.TrimSpace(line)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended != nil {
		select {
		case <-g.ended:
			// QEMU does not reboot: who kills it gives it another status.
			if state.Panicked == "" && g.cmd.ProcessState.Success() {
				state.Panicked = "its processor was reset without a word (a triple fault), and QEMU ended with status 0"
			}
		default:
			state.Running = true
		}
	}
	return nil
}

// End ends the guest at once.
func (n *Node) End(_ wire.None, _ *wire.None) error {
	n.guest.mu.Lock()
	defer n.guest.mu.Unlock()
	n.guest.end()
	return nil
}

func (g *guest) end() {
	if g.cmd == nil {
		return
	}
	_ = g.cmd.Process.Kill() // it may have ended
	<-g.ended
	if g.client != nil {
		_ = g.client.Close()
	}
	g.cmd, g.client = nil, nil
}
