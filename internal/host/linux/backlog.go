package linux

import (
	"github.com/vishvananda/netlink"

	"github.com/joulevirt/joulevirt/internal/datapath"
	"github.com/joulevirt/joulevirt/internal/host"
)

// lookRounds is after how many rounds the queues of a VM with traffic are looked at
// again: it takes a thread, a change of namespaces and several system calls. Those that
// hold packets are looked at in each: what goes wrong there is to be seen at once.
const lookRounds = 15

// look is when a process's queues were looked at.
type look struct {
	// next round in which they are, if there was traffic since.
	next uint64
	// packets of both directions, and drops, at the last look.
	packets uint64
	// waiting is true when something waited then: it may be stuck.
	waiting bool
}

// addBacklogs tells what waits for the taps of a process, when it is time to look and
// there was traffic since. What cannot be read is left out.
func (h *Host) addBacklogs(p *process, taps []host.TapSample) {
	if p.look.next == 0 { // spread over the rounds
		p.look.next = h.round + uint64(p.ID.PID)%lookRounds
	}
	var packets uint64
	for i := range taps {
		for _, way := range []host.TrafficCounters{taps[i].ToVM, taps[i].FromVM} {
			packets += way.Packets + way.Drops
		}
	}
	if h.round < p.look.next && !h.buffers.holds(p.ID) || (packets == p.look.packets && !p.look.waiting) {
		return
	}
	p.look = look{next: h.round + lookRounds, packets: packets}
	_ = h.inNetwork(p.ID, func(handle *netlink.Handle) error { // it has no backlog to tell, then
		for i := range taps {
			backlog, drops, ok := backlogOf(handle, taps[i].Name)
			if ok {
				taps[i].Backlog = &backlog
				p.look.waiting = p.look.waiting || backlog > 0
			}
			if drops != nil {
				h.buffers.dropped(tapKey{p.ID, taps[i].Name}, *drops)
			}
		}
		return nil
	})
}

// backlogOf is what waits in a device's root queue, which counts that of all below it, and
// what was dropped there when the queue holds packets.
func backlogOf(handle *netlink.Handle, name string) (backlog uint64, drops *uint64, ok bool) {
	d, err := openDevice(handle, name)
	if err != nil {
		return 0, nil, false
	}
	qdiscs, err := d.QdiscList(d.link)
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
