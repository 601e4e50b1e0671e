package linux

import (
	"github.com/vishvananda/netlink"

	"github.com/joulevirt/joulevirt/internal/datapath"
	"github.com/joulevirt/joulevirt/internal/host"
)

// lookRounds is after how many rounds the queues of a VM with traffic are looked at
// again: it takes a thread, a change of namespaces and several system calls. Those that
// hold packets are looked at in each, for what goes wrong there is to be seen at once, or
// in turns when there are more than mostLooks, which take 1 % of a CPU.
const lookRounds, mostLooks = 15, 50

// look is when a process's queues were looked at.
type look struct {
	// next round in which they are, if there was traffic since.
	next uint64
	// packets of both directions, and drops, at the last look.
	packets uint64
	// waiting is true when something waited then: it may be stuck.
	waiting bool
}

// isDue tells whether queues are looked at in a round, or because it is their turn. What
// is held may be stuck, so that no packet passes.
func (l *look) isDue(round, packets uint64, turn bool) bool {
	return turn || round >= l.next && (packets != l.packets || l.waiting)
}

// lookTurns share a round's looks out among the processes that hold packets.
type lookTurns struct {
	round uint64
	// holding counts those that asked in this round so far, and before in the last one.
	holding, before int
}

// has tells whether it is the turn of the next process that holds packets.
func (t *lookTurns) has(round uint64) bool {
	if t.round != round {
		*t = lookTurns{round: round, before: t.holding}
	}
	of := 1 + max(0, t.before-1)/mostLooks
	t.holding++
	return uint64(t.holding%of) == round%uint64(of)
}

// addBacklogs tells what waits for the taps of a process, when it is time to look. What
// cannot be read is left out.
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
	if !p.look.isDue(h.round, packets, h.buffers.holds(p.ID) && h.lookTurns.has(h.round)) {
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
