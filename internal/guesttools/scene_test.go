package guesttools

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/datapath/inband"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/test/hosttest"
)

// scene is a guest with one real card in a network namespace of its own, and the other
// end of its cable. Only sysfs is made up, with the card's own address, and the holder.
type scene struct {
	*testing.T
	sys, state string
	card       card
	host       *line
	now        time.Duration
	holder     *holder
	log        bytes.Buffer
	tools      *Tools
}

// holder remembers what it was reported.
type holder struct {
	card  int // index of card0
	calls []string
	holds map[string]model.Buffering
	fail  error
}

func (h *holder) Hold(card int, as model.Buffering) error {
	h.calls = append(h.calls, fmt.Sprintf("hold %s %v", h.name(card), as.Window))
	if h.fail != nil {
		return h.fail
	}
	h.holds[h.name(card)] = as
	return nil
}

func (h *holder) name(index int) string {
	if index == h.card {
		return "card0"
	}
	return strconv.Itoa(index)
}

func (h *holder) Release(card int) error {
	h.calls = append(h.calls, "release "+h.name(card))
	delete(h.holds, h.name(card))
	return nil
}

func (h *holder) Extend(time.Duration) error {
	h.calls = append(h.calls, "extend")
	return nil
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func newScene(t *testing.T) *scene {
	s := &scene{T: t, sys: t.TempDir(), state: t.TempDir(), now: time.Hour, holder: &holder{holds: map[string]model.Buffering{}}}
	// The thread is not given back, and ends with the test.
	runtime.LockOSThread()
	s.must(unix.Unshare(unix.CLONE_NEWNET))
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "card0"
	s.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "host0"}))
	for _, name := range []string{"card0", "host0"} {
		link, err := netlink.LinkByName(name)
		s.must(err)
		s.must(netlink.LinkSetUp(link))
	}
	hosttest.Eventually(t, "the cable to carry packets", func() bool {
		for _, name := range []string{"card0", "host0"} {
			link, err := netlink.LinkByName(name)
			s.must(err)
			if link.Attrs().OperState != netlink.OperUp {
				return false
			}
		}
		return true
	})
	s.card = s.show("card0", driver)
	s.holder.card = s.card.index
	s.show("lo", "")
	s.show("other0", "e1000")
	peer, err := net.InterfaceByName("host0")
	s.must(err)
	s.host, err = openLine(card{name: "host0", index: peer.Index})
	s.must(err)
	t.Cleanup(func() { s.must(s.host.close()) })
	return s
}

// show has sysfs show a device: the real one's address, when there is one.
func (s *scene) show(name, driver string) card {
	s.Helper()
	c := card{name: name, index: 99, address: inband.MAC{2}}
	if real, err := net.InterfaceByName(name); err == nil {
		c.index = real.Index
		copy(c.address[:], real.HardwareAddr)
	}
	s.write(name, "ifindex", strconv.Itoa(c.index)+"\n")
	s.write(name, "address", net.HardwareAddr(c.address[:]).String()+"\n")
	s.write(name, "statistics/rx_packets", "0\n")
	s.write(name, hardIRQs, "0\n")
	s.write(name, flushTime, "0\n")
	if driver != "" {
		s.write(name, "device/vendor", "")
		s.must(os.Symlink("../../../../bus/virtio/drivers/"+driver, filepath.Join(s.sys, "class/net", name, "device/driver")))
	}
	return c
}

func (s *scene) write(card, file, text string) {
	s.Helper()
	path := filepath.Join(s.sys, "class/net", card, file)
	s.must(os.MkdirAll(filepath.Dir(path), 0o755))
	s.must(os.WriteFile(path, []byte(text), 0o644))
}

func (s *scene) options(longest time.Duration) Options {
	return Options{
		SysRoot: s.sys, StateDir: s.state, Longest: longest, Holder: s.holder,
		Now: func() time.Duration { return s.now }, Log: slog.New(slog.NewTextHandler(&s.log, nil)),
	}
}

func (s *scene) open(longest time.Duration) {
	s.Helper()
	var err error
	s.tools, err = Open(s.options(longest))
	s.must(err)
	s.must(s.tools.round())
}

// kill ends the tools without a word.
func (s *scene) kill() {
	s.Helper()
	for _, c := range s.tools.states {
		s.must(c.closeLine())
	}
	s.must(s.tools.journal.close())
}

// pass has a second pass in which packets are received, and then a round.
func (s *scene) pass(packets int) {
	s.Helper()
	s.now += time.Second
	got, err := s.tools.cards.received("card0")
	s.must(err)
	s.write("card0", "statistics/rx_packets", strconv.FormatUint(got+uint64(packets), 10))
	s.must(s.tools.round())
}

// declaration is the next that comes out of the cable's other end.
func (s *scene) declaration() inband.Declaration {
	s.Helper()
	buffer := make([]byte, 2*inband.Size)
	for deadline := time.Now().Add(time.Minute); ; {
		n, _, err := unix.Recvfrom(s.host.fd, buffer, 0)
		if errors.Is(err, unix.EAGAIN) && time.Now().Before(deadline) {
			_, err = unix.Poll([]unix.PollFd{{Fd: int32(s.host.fd), Events: unix.POLLIN}}, 100)
			s.must(err)
			continue
		}
		s.must(err)
		s.must(err)
		return declarationOf(buffer[:n])
	}
}

// declarationOf decodes a declaration as the host's program does.
func declarationOf(f []byte) inband.Declaration {
	window := func(at int) time.Duration { return time.Duration(binary.BigEndian.Uint32(f[at:])) * us }
	return inband.Declaration{
		Source: inband.MAC(f[6:12]), Nonce: binary.BigEndian.Uint32(f[22:]),
		Tolerated: window(26), Transmit: window(30), Defers: f[21]&1 != 0,
	}
}

// frameOf encodes an answer as the host's program does.
func frameOf(a inband.Answer) [inband.Size]byte {
	f := inband.Declaration{Source: inband.Group(), Nonce: a.Nonce, Tolerated: a.Window}.Frame()
	copy(f[:], a.Destination[:])
	const answer = 2
	f[19] = answer
	binary.BigEndian.PutUint32(f[30:], a.OnPackets)
	return f
}

// answer sends one into the other end of the cable.
func (s *scene) answer(a inband.Answer) {
	s.Helper()
	s.must(s.host.send(frameOf(a)))
	// Until the card's socket has it.
	_, err := unix.Poll([]unix.PollFd{{Fd: int32(s.tools.states[s.card.index].line.fd), Events: unix.POLLIN}}, 10_000)
	s.must(err)
}

// agree answers the last declaration.
func (s *scene) agree(window time.Duration) inband.Declaration {
	s.Helper()
	d := s.declaration()
	s.answer(inband.Answer{Destination: d.Source, Nonce: d.Nonce, Window: window, OnPackets: onPackets})
	return d
}

func (s *scene) wantDeferral(what string, want deferral) {
	s.Helper()
	if got, err := s.tools.cards.deferral("card0"); err != nil || got != want {
		s.Errorf("%s: %+v, %v; want %+v", what, got, err, want)
	}
}

func (s *scene) wantStatus(what string, want ...CardStatus) {
	s.Helper()
	got, err := ReadStatus(s.state)
	s.must(err)
	if diff := cmp.Diff(want, got.Cards); diff != "" {
		s.Errorf("%s, status (-want +got):\n%s", what, diff)
	}
}

func (s *scene) wantCalls(what string, want ...string) {
	s.Helper()
	if diff := cmp.Diff(want, s.holder.calls); diff != "" {
		s.Errorf("%s, calls (-want +got):\n%s", what, diff)
	}
	s.holder.calls = nil
}
