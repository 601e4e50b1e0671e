package linux

import (
	"net"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/host/hosttest"
)

// looked is what the host told of tap0 in each of some rounds.
func looked(t *testing.T, h *Host, id host.TaskID, rounds int) (told []uint64) {
	t.Helper()
	for range rounds {
		mustProcesses(t, h)
		sample, err := h.Sample(id)
		if err != nil || sample.TapsErr != nil {
			t.Fatal(err, sample.TapsErr)
		}
		for _, tap := range sample.Taps {
			if tap.Name == "tap0" && tap.Backlog != nil {
				told = append(told, *tap.Backlog)
			}
		}
	}
	return told
}

func TestRealBacklogOfATap(t *testing.T) {
	n := hosttest.NewOutside(t).NewVM("shop", "web", hosttest.Masquerade)
	h := realHost(t)
	n.Pod(func() error {
		link, err := netlink.LinkByName("tap0")
		if err != nil {
			return err
		}
		return netlink.QdiscAdd(&netlink.Tbf{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
			Rate:       10_000, Limit: 1 << 22, Buffer: netlink.Xmittime(10_000, 20_000),
		})
	})
	send := func(packets int) {
		t.Helper()
		n.Pod(func() error {
			conn, err := net.Dial("udp", n.Own+":9")
			if err != nil {
				return err
			}
			defer conn.Close()
			for range packets {
				// That nobody listens may come back as an error of a later one.
				_, _ = conn.Write(make([]byte, 1000))
			}
			return nil
		})
	}
	// The first packets wait for the guest's address.
	hosttest.Eventually(t, "what waits for the tap to be told", func() bool {
		send(200)
		told := looked(t, h, n.VM.ID(), lookRounds)
		if len(told) > 1 {
			t.Errorf("told %v within %d rounds, want once", told, lookRounds)
		}
		return len(told) == 1 && told[0] > 10*1000
	})
	// Looked at again although hardly anything passes: it may be stuck.
	for range 3 {
		if told := looked(t, h, n.VM.ID(), lookRounds); len(told) != 1 || told[0] == 0 {
			t.Errorf("told %v of what still waits", told)
		}
	}
}

func TestRealNoTrafficIsNotLookedAt(t *testing.T) {
	n := hosttest.NewOutside(t).NewVM("shop", "web", hosttest.Bridge)
	n.Guest(func() error { // not even neighbour discovery
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.LinkSetDown(link)
	})
	h := realHost(t)
	looked(t, h, n.VM.ID(), 2*lookRounds) // what there was before
	if told := looked(t, h, n.VM.ID(), 2*lookRounds); len(told) != 0 {
		t.Errorf("told %v of a tap without traffic", told)
	}
}
