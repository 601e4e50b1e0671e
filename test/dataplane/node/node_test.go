package node

import (
	"context"
	"errors"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

func TestPodsAreReachedFromTheNodeAndCounted(t *testing.T) {
	n, err := New(t.TempDir(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	pod, err := n.Attach()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pod.Close)
	listener, err := pod.Listen(80)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go echo(listener)

	const payload = 100_000
	before, err := pod.Counters()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := n.Dial(t.Context(), "tcp", net.JoinHostPort(pod.Address().String(), "80"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if host, _, _ := net.SplitHostPort(conn.LocalAddr().String()); host != Address().String() {
		t.Errorf("a client on the node has the address %s, want the node's %s", host, Address())
	}
	go func() { _, _ = io.CopyN(conn, zeros{}, payload) }()
	if _, err := io.CopyN(io.Discard, conn, payload); err != nil {
		t.Fatal(err)
	}
	after, err := pod.Counters()
	if err != nil {
		t.Fatal(err)
	}
	for way, bytes := range map[string]uint64{
		"received": after.ReceivedBytes - before.ReceivedBytes, "sent": after.SentBytes - before.SentBytes,
	} {
		if bytes < payload || bytes > payload*2 {
			t.Errorf("the pod %s %d bytes, want %d and some overhead", way, bytes, payload)
		}
	}

	if err := pod.Cut(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if conn, err := n.Dial(ctx, "tcp", net.JoinHostPort(pod.Address().String(), "80")); err == nil {
		conn.Close()
		t.Error("a pod that was cut off is reached")
	}
}

func TestProgramsSeeTheHostFromTheNodesNetwork(t *testing.T) {
	n, err := New(t.TempDir(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	listener, err := net.Listen("tcp", net.JoinHostPort(n.HostAddress().String(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	process, err := n.Start("client", "/bin/bash", "-c", "exec 3<>/dev/tcp/"+n.HostAddress().String()+"/"+port)
	if err != nil {
		t.Fatal(err)
	}
	if code := process.ExitCode(); code != 0 {
		t.Errorf("a program on the node does not reach this machine: exit code %d", code)
	}
}

// TestNodesAreApart runs two at once, as two test processes do, and looks at
// what they leave.
func TestNodesAreApart(t *testing.T) {
	var names []string
	for range 2 {
		n, err := New(t.TempDir(), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(n.Close)
		link, err := linkWith(n.HostAddress().String())
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, link)
	}
	if names[0] == names[1] {
		t.Errorf("both nodes have the link %s", names[0])
	}
	n, err := New(t.TempDir(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	name, err := linkWith(n.HostAddress().String())
	if err != nil {
		t.Fatal(err)
	}
	n.Close()
	if _, err := netlink.LinkByName(name); !errors.As(err, &netlink.LinkNotFoundError{}) {
		t.Errorf("after Close the link %s: %v, want it to be gone", name, err)
	}
}

// linkWith is the name of this machine's link with an address.
func linkWith(address string) (string, error) {
	out, err := exec.Command("ip", "-o", "-4", "address", "show", "to", address).Output()
	if err != nil {
		return "", err
	}
	fields := strings.Fields(string(out))
	if len(fields) < 2 {
		return "", errors.New("no link has the address " + address)
	}
	return fields[1], nil
}

func echo(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			_, _ = io.Copy(conn, conn)
		}()
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
