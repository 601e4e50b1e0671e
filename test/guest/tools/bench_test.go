//go:build e2e

package tools

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/datapath"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/test/guest"
	"github.com/joulevirt/joulevirt/test/guest/gobuild"
	"github.com/joulevirt/joulevirt/test/hosttest"
)

const (
	module = "github.com/joulevirt/joulevirt/"
	// leased is how long the host lets packets be held without saying so again.
	leased = 5 * time.Second
	// mostKicks is what holding must bring the guest's kicks below, of those without.
	mostKicks = 0.8
)

// bench is a guest, its tap with the programs of a host, and what comes out of it.
type bench struct {
	*testing.T
	dir     string
	outside *hosttest.Outside
	paused  atomic.Bool
	socket  net.PacketConn
	console io.Reader
	trace   string
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func newBench(t *testing.T) *bench {
	b := &bench{T: t, dir: t.TempDir(), outside: hosttest.NewOutside(t)}
	b.outside.Do(func() (err error) {
		if err = addTap(); err != nil {
			return err
		}
		b.socket, err = net.ListenPacket("udp", "10.77.0.1:9000")
		return err
	})
	b.must(makeRoom(b.socket))
	b.Cleanup(func() { b.socket.Close() })
	b.attach()
	b.echo()
	b.start()
	return b
}

// makeRoom lets a socket keep all packets of a guest until this machine has time for them.
func makeRoom(socket net.PacketConn) error {
	const room = 32 << 20
	raw, err := socket.(*net.UDPConn).SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, room)
	})
	return errors.Join(err, failed)
}

func addTap() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "tap0"
	tap := &netlink.Tuntap{LinkAttrs: attrs, Mode: netlink.TUNTAP_MODE_TAP, Flags: netlink.TUNTAP_NO_PI | netlink.TUNTAP_VNET_HDR | netlink.TUNTAP_ONE_QUEUE}
	if err := netlink.LinkAdd(tap); err != nil {
		return err
	}
	address, err := netlink.ParseAddr("10.77.0.1/24")
	if err != nil {
		return err
	}
	return errors.Join(netlink.AddrAdd(tap, address), netlink.LinkSetUp(tap))
}

// attach puts the real programs on the tap, and keeps their lease, as agents do, unless it is
// paused. This machine's kernel may lack fq, without which nothing towards the guest is held;
// declarations need none.
func (b *bench) attach() {
	b.Helper()
	path := datapath.New(datapath.Options{PinRoot: hosttest.NewPinRoot(b), WithoutQueue: true})
	b.Cleanup(func() { b.must(path.Close()) })
	b.outside.Do(func() error {
		handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer handle.Close()
		tap, err := handle.LinkByName("tap0")
		if err != nil {
			return err
		}
		return path.Apply(handle, tap, "tap0", datapath.ConfigOf(model.Buffering{Window: time.Millisecond, OnPackets: 2000}))
	})
	ticker, ended := time.NewTicker(time.Second), make(chan struct{})
	b.Cleanup(func() {
		ticker.Stop()
		<-ended
	})
	go func() {
		defer close(ended)
		for {
			if !b.paused.Load() {
				if err := path.Extend(leased); err != nil {
					b.Errorf("extend the lease: %v", err)
				}
			}
			select {
			case <-ticker.C:
			case <-b.Context().Done():
				return
			}
		}
	}()
}

// start boots the guest. It ends with the test. The guest's clock counts instructions, two
// nanoseconds each, while it is busy: however slow this machine is, packets that it sends
// are as far apart as they should be. QEMU takes what the guest sends 50 us of that clock
// after a kick, as a thread that has to wake up would: else it would be a matter of this
// machine's load how many packets find it awake, and need no kick.
func (b *bench) start() {
	b.Helper()
	programs := map[string]string{"helper": "test/guest/tools/helper", "joulevirt-guest": "cmd/joulevirt-guest"}
	files := map[string]string{"init": "init.sh", "bin/busybox": "/usr/bin/busybox"}
	for name, pkg := range programs {
		files["bin/"+name] = filepath.Join(b.dir, name)
		b.must(gobuild.Static(b.Context(), module+pkg, files["bin/"+name]))
	}
	packed, err := guest.Pack(guest.Options{}, guest.Contents{
		Files: files, Modules: []string{"virtio_pci", "virtio_net", "sch_fq", "sch_ingress", "cls_bpf"},
	})
	b.must(err)
	initramfs := filepath.Join(b.dir, "initramfs.cpio")
	b.must(os.WriteFile(initramfs, packed.Initramfs, 0o600))
	b.trace = filepath.Join(b.dir, "trace")
	cmd := exec.Command("qemu-system-x86_64",
		"-accel", "tcg,thread=single", "-icount", "shift=1", "-rtc", "clock=vm", "-machine", "q35", "-cpu", "max", "-m", "256", "-smp", "1",
		"-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot",
		"-kernel", packed.Kernel, "-initrd", initramfs,
		"-append", "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable no_timer_check",
		"-netdev", "tap,id=n0,ifname=tap0,script=no,downscript=no,vhost=off",
		"-device", "virtio-net-pci,netdev=n0,mac=02:00:00:00:0a:02,romfile=,tx=timer,x-txtimer=50000",
		"-trace", "virtio_queue_notify", "-D", b.trace)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	b.console, err = cmd.StdoutPipe()
	b.must(err)
	b.outside.Do(cmd.Start)
	b.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		if problems.Len() > 0 {
			b.Log(problems.String())
		}
	})
	deadline := time.AfterFunc(15*time.Minute, func() { _ = cmd.Process.Kill() })
	b.Cleanup(func() { deadline.Stop() })
}

// kicks is how often the guest reported QEMU of packets that it sends.
func (b *bench) kicks() int {
	b.Helper()
	text, err := os.ReadFile(b.trace)
	b.must(err)
	return len(regexp.MustCompile(`virtio_queue_notify .* n 1 `).FindAll(text, -1))
}

// hear takes in as many packets as are sent, and tells when they have all come, in their
// order, or why not.
func (b *bench) hear(sent int) <-chan error {
	heard := make(chan error, 1)
	go func() { heard <- b.hearAll(sent) }()
	return heard
}

func (b *bench) hearAll(sent int) error {
	if err := b.socket.SetReadDeadline(time.Now().Add(10 * time.Minute)); err != nil {
		return err
	}
	packet := make([]byte, 64)
	for want := range uint64(sent) {
		n, _, err := b.socket.ReadFrom(packet)
		if err != nil || n < 8 {
			return fmt.Errorf("packet %d: %w", want, err)
		}
		if got := binary.BigEndian.Uint64(packet); got != want {
			return fmt.Errorf("packet %d came in place of %d", got, want)
		}
	}
	return nil
}

// echo sends back what the guest sends to port 9002, until the test ends.
func (b *bench) echo() {
	b.Helper()
	var conn net.PacketConn
	b.outside.Do(func() (err error) {
		conn, err = net.ListenPacket("udp", "10.77.0.1:9002")
		return err
	})
	ended := make(chan struct{})
	b.Cleanup(func() {
		conn.Close()
		<-ended
	})
	go func() {
		defer close(ended)
		for packet := make([]byte, 64); ; {
			n, from, err := conn.ReadFrom(packet)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(packet[:n], from) // a guest that is off takes none
		}
	}()
}
