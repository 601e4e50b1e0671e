package linux

import (
	"net"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/joulevirt/joulevirt/internal/datapath"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/test/hosttest"
)

// backlogs are those of tap0 that the host reported in some rounds.
func backlogs(t *testing.T, h *Host, id host.TaskID, rounds int) (reported []uint64) {
	t.Helper()
	for range rounds {
		nextRound(t, h)
		sample, err := h.Sample(id)
		if err != nil || sample.TapsErr != nil {
			t.Fatal(err, sample.TapsErr)
		}
		for _, tap := range sample.Taps {
			if tap.Name == "tap0" && tap.Backlog != nil {
				reported = append(reported, *tap.Backlog)
			}
		}
	}
	return reported
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
	hosttest.Eventually(t, "what waits for the tap to be reported", func() bool {
		send(200)
		reported := backlogs(t, h, n.VM.ID(), queueRounds)
		if len(reported) > 1 {
			t.Errorf("reported %v within %d rounds, want once", reported, queueRounds)
		}
		return len(reported) == 1 && reported[0] > 10*1000
	})
	// Read again although hardly anything passes: it may be stuck.
	for range 3 {
		if reported := backlogs(t, h, n.VM.ID(), queueRounds); len(reported) != 1 || reported[0] == 0 {
			t.Errorf("reported %v of what still waits", reported)
		}
	}
}

func TestWhenQueuesAreRead(t *testing.T) {
	for name, test := range map[string]struct {
		queues         queueReading
		round, packets uint64
		holding        int
		want           bool
	}{
		"not yet":                        {queueReading{next: 15, packets: 10}, 14, 20, 0, false},
		"traffic since":                  {queueReading{next: 15, packets: 10}, 15, 20, 0, true},
		"no traffic since":               {queueReading{next: 15, packets: 10}, 15, 10, 0, false},
		"no traffic, something waited":   {queueReading{next: 15, packets: 10, waiting: true}, 15, 10, 0, true},
		"packets are held":               {queueReading{next: 15, packets: 10}, 2, 20, 1, true},
		"packets are held, none gets on": {queueReading{next: 15, packets: 10}, 2, 10, mostReadings, true},
		"too many hold, not its turn":    {queueReading{next: 15, packets: 10}, 2, 10, mostReadings + 1, false},
		"too many hold, its turn":        {queueReading{next: 15, packets: 10}, 3, 10, mostReadings + 1, true},
	} {
		if got := test.queues.isDue(test.round, 7, test.packets, test.holding); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A process holds packets while one of its taps held more since the last sample.
func TestProcessesThatHoldPackets(t *testing.T) {
	b := newDevices(datapath.Options{})
	id, other := host.TaskID{PID: 100, TID: 100}, host.TaskID{PID: 200, TID: 200}
	for i, step := range []struct {
		first, second, others uint64
		want, wantOther       int
	}{{0, 0, 0, 0, 0}, {0, 5, 0, 1, 0}, {0, 5, 0, 0, 0}, {3, 5, 1, 2, 2}, {9, 9, 1, 1, 0}, {9, 9, 1, 0, 0}, {0, 0, 0, 0, 0}} {
		b.recordHeld(deviceKey{id, "tap0"}, step.first)
		b.recordHeld(deviceKey{id, "tap1"}, step.second)
		b.recordHeld(deviceKey{other, "tap0"}, step.others)
		if got, gotOther := b.holding(id), b.holding(other); got != step.want || gotOther != step.wantOther {
			t.Errorf("step %d: %d, another process %d", i, got, gotOther)
		}
	}
}
