package linux

import (
	"github.com/vishvananda/netlink"

	"github.com/joulevirt/joulevirt/internal/datapath"
	"github.com/joulevirt/joulevirt/internal/host"
)

// queueRounds is after how many rounds the queues of a VM with traffic are read again: it
// takes a thread, a change of namespaces and several system calls. Those that hold packets
// are read in each round, because what goes wrong there must show at once; if more VMs than
// mostReadings hold packets, they take turns, which costs 1 % of a CPU.
const queueRounds, mostReadings = 15, 50

// queueReading is the last reading of a process's queues.
type queueReading struct {
	// next round in which they are read, if there was traffic since.
	next uint64
	// packets of both directions, and drops, at that time.
	packets uint64
	// waiting is true when something waited then: it may be stuck.
	waiting bool
}

// isDue returns true if queues are read in a round. holding counts the VMs that hold
// packets, this one included; 0: it does not. What is held may be stuck, so that no packet
// passes.
func (q *queueReading) isDue(round, pid, packets uint64, holding int) bool {
	if holding > 0 {
		return (round+pid)%uint64(1+(holding-1)/mostReadings) == 0
	}
	return round >= q.next && (packets != q.packets || q.waiting)
}

// addBacklogs adds what waits for the taps of a process, when it is due. What cannot be read
// is left out.
func (h *Host) addBacklogs(p *process, taps []host.TapSample) {
	pid := uint64(p.ID.PID)
	if p.queues.next == 0 { // spread over the rounds
		p.queues.next = h.round + pid%queueRounds
	}
	var packets uint64
	for i := range taps {
		for _, way := range []host.TrafficCounters{taps[i].ToVM, taps[i].FromVM} {
			packets += way.Packets + way.Drops
		}
	}
	if !p.queues.isDue(h.round, pid, packets, h.devices.holding(p.ID)) {
		return
	}
	p.queues = queueReading{next: h.round + queueRounds, packets: packets}
	_ = h.inNetwork(p.ID, func(handle *netlink.Handle) error { // without an answer nothing is added
		for i := range taps {
			backlog, drops, ok := backlogOf(handle, taps[i].Name)
			if ok {
				taps[i].Backlog = &backlog
				p.queues.waiting = p.queues.waiting || backlog > 0
			}
			if drops != nil {
				h.devices.recordDrops(deviceKey{p.ID, taps[i].Name}, *drops)
			}
		}
		return nil
	})
}

// backlogOf is what waits in a device's root queue, which counts that of all below it, and
// what was dropped there when the queue holds packets.
func backlogOf(handle *netlink.Handle, name string) (backlog uint64, drops *uint64, ok bool) {
	link, err := handle.LinkByName(name)
	if err != nil {
		return 0, nil, false
	}
	qdiscs, err := handle.QdiscList(link)
	if err != nil {
		return 0, nil, false
	}
	if dropped, ours := datapath.Drops(qdiscs); ours {
		drops = &dropped
	}
	for _, qdisc := range qdiscs {
		attrs := qdisc.Attrs()
		if attrs.Parent == netlink.HANDLE_ROOT && attrs.Statistics != nil && attrs.Statistics.Queue != nil {
			return uint64(attrs.Statistics.Queue.Backlog), drops, true
		}
	}
	return 0, nil, false
}
