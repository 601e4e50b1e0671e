package hosttest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Binding is how KubeVirt ties a VM to its pod's network.
type Binding int

// The bindings.
const (
	// Masquerade: the pod's eth0 and the VM's tap are apart, and the pod routes.
	Masquerade Binding = iota
	// Bridge: the pod's eth0 was renamed and is a port of a bridge, like the tap.
	Bridge
)

// Outside is the network behind the uplinks of pods, in a network namespace
// without a name that ends with the test.
type Outside struct {
	t    testing.TB
	ns   int
	pods int
}

// NewOutside makes the network.
func NewOutside(t testing.TB) *Outside {
	t.Helper()
	return &Outside{t: t, ns: newNamespace(t)}
}

// Do works in the network.
func (o *Outside) Do(do func() error) { inNamespace(o.t, o.ns, do) }

// Network is that of a VM's pod: a namespace for the guest, whose device stands
// for the VM's NIC, and that of the VM's process, in which a veth named tap0
// stands for the tap.
type Network struct {
	// VM is the process whose namespace is the pod's.
	VM *VM
	// Uplink is the pod's device that leads out.
	Uplink string
	// Peer is an address of the outside that the guest reaches, and Own that of
	// the guest.
	Peer, Own string

	t          testing.TB
	guest, pod int
}

// NewVM starts a VM's process in a pod's network with the outside behind it.
func (o *Outside) NewVM(namespace, name string, binding Binding) *Network {
	o.t.Helper()
	o.pods++
	vm := startVM(o.t, namespace, name, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET})
	n := &Network{VM: vm, Uplink: "eth0", t: o.t, guest: newNamespace(o.t)}
	n.pod = openNamespace(o.t, filepath.Join("/proc", strconv.Itoa(vm.PID()), "ns/net"))
	peer := "peer" + strconv.Itoa(o.pods)
	inside := fmt.Sprintf("10.77.%d.", o.pods)
	n.Own, n.Peer = inside+"2", inside+"1"
	if binding == Bridge {
		n.Uplink = "eth0-nic"
	}
	n.Pod(func() error {
		return firstOf(
			func() error { return addPair("tap0", "eth0", n.guest) },
			func() error { return addPair(n.Uplink, peer, o.ns) },
			func() error { return setUp("lo", "") },
		)
	})
	if binding == Bridge {
		n.bridge(o, peer, inside)
		return n
	}
	n.Peer = fmt.Sprintf("10.78.%d.1", o.pods)
	n.route(o, peer, inside)
	return n
}

func (n *Network) bridge(o *Outside, peer, inside string) {
	n.Guest(func() error { return setUp("eth0", inside+"2/24") })
	o.Do(func() error { return setUp(peer, inside+"1/24") })
	n.Pod(func() error {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "k6t-eth0"}}
		if err := netlink.LinkAdd(bridge); err != nil {
			return err
		}
		for _, port := range []string{"tap0", n.Uplink} {
			link, err := netlink.LinkByName(port)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetMaster(link, bridge); err != nil {
				return err
			}
		}
		return firstOf(
			func() error { return setUp("tap0", "") },
			func() error { return setUp(n.Uplink, "") },
			func() error { return setUp("k6t-eth0", "") },
		)
	})
}

func (n *Network) route(o *Outside, peer, inside string) {
	between := n.Peer[:len(n.Peer)-1]
	n.Pod(func() error {
		return firstOf(
			func() error { return setUp("tap0", inside+"1/24") },
			func() error { return setUp(n.Uplink, between+"2/24") },
			func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0) },
		)
	})
	n.Guest(func() error {
		return firstOf(func() error { return setUp("eth0", inside+"2/24") }, func() error { return addRoute("0.0.0.0/0", inside+"1") })
	})
	o.Do(func() error {
		return firstOf(func() error { return setUp(peer, between+"1/24") }, func() error { return addRoute(inside+"0/24", between+"2") })
	})
}

// Guest works as the VM's guest would.
func (n *Network) Guest(do func() error) { inNamespace(n.t, n.guest, do) }

// Pod works in the pod's network namespace.
func (n *Network) Pod(do func() error) { inNamespace(n.t, n.pod, do) }

// Describe says what the pod's namespace has: devices with their queueing disciplines and filters,
// and routes. It is the same text as long as nobody changes any of them.
func (n *Network) Describe() string {
	n.t.Helper()
	var text strings.Builder
	n.Pod(func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, link := range links {
			if err := describeLink(&text, link); err != nil {
				return fmt.Errorf("device %s: %w", link.Attrs().Name, err)
			}
		}
		routes, err := netlink.RouteList(nil, netlink.FAMILY_V4) // the kernel adds those of IPv6 late
		for _, route := range routes {
			fmt.Fprintln(&text, "route", route)
		}
		return err
	})
	return text.String()
}

func describeLink(text *strings.Builder, link netlink.Link) error {
	is := link.Attrs()
	fmt.Fprintln(text, "device", is.Name, "MTU", is.MTU, "master", is.MasterIndex, "queue", is.TxQLen, "XDP", is.Xdp != nil && is.Xdp.Attached)
	queues, err := netlink.QdiscList(link)
	if err != nil {
		return err
	}
	for _, queue := range queues {
		fmt.Fprintf(text, "  %s %x of %x\n", queue.Type(), queue.Attrs().Handle, queue.Attrs().Parent)
	}
	for _, parent := range []uint32{netlink.HANDLE_ROOT, netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		filters, err := netlink.FilterList(link, parent)
		if err != nil {
			return err
		}
		for _, filter := range filters {
			fmt.Fprintf(text, "  filter %s %x of %x\n", filter.Type(), filter.Attrs().Handle, parent)
		}
	}
	return nil
}

// OpenSender returns a socket that sends frames through a device of this thread's network namespace.
func OpenSender(device string) (fd int, err error) {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return -1, err
	}
	if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, err
	}
	return fd, unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: link.Attrs().Index})
}

func firstOf(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func addPair(name, peer string, ns int) error {
	return netlink.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: peer, PeerNamespace: netlink.NsFd(ns),
	})
}

func setUp(name, address string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if address != "" {
		parsed, err := netlink.ParseAddr(address)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, parsed); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(link)
}

func addRoute(to, via string) error {
	_, network, err := net.ParseCIDR(to)
	if err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{Dst: network, Gw: net.ParseIP(via)})
}

func newNamespace(t testing.TB) int {
	t.Helper()
	own := openNamespace(t, "/proc/self/ns/net")
	ns := -1
	inNamespace(t, own, func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w (these tests need root)", err)
		}
		ns, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	})
	t.Cleanup(func() { unix.Close(ns) })
	return ns
}

func openNamespace(t testing.TB, path string) int {
	t.Helper()
	ns, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(ns) })
	return ns
}

// inNamespace works on a thread in a network namespace. Sockets that it makes
// stay there.
func inNamespace(t testing.TB, ns int, do func() error) {
	t.Helper()
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			result <- err
			return
		}
		defer unix.Close(home)
		if err = unix.Setns(ns, unix.CLONE_NEWNET); err == nil {
			err = do()
		}
		// A thread that stays locked ends with its goroutine.
		if unix.Setns(home, unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		result <- err
	}()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
}
