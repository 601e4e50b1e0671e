package datapath

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
)

func TestQueueOf(t *testing.T) {
	ours := netlink.MakeHandle(buffering.major(), 0)
	attrs := func(handle, parent uint32) netlink.QdiscAttrs {
		return netlink.QdiscAttrs{Handle: handle, Parent: parent, Statistics: &netlink.QdiscStatistics{
			Queue: &netlink.GnetStatsQueue{Qlen: 3, Drops: 5},
		}}
	}
	other := func(kind string, handle, parent uint32) netlink.Qdisc {
		return &netlink.GenericQdisc{QdiscType: kind, QdiscAttrs: attrs(handle, parent)}
	}
	device := &netlink.Dummy{}
	fq := func(handle, parent uint32) *netlink.Fq {
		fq := newFq(buffering, device, handle, parent)
		fq.QdiscAttrs = attrs(handle, parent)
		return fq
	}
	paced := fq(ours, netlink.HANDLE_ROOT)
	paced.Pacing = 1
	short := fq(ours, netlink.HANDLE_ROOT)
	short.Horizon = uint32((10 * time.Second).Microseconds())
	const root = netlink.HANDLE_ROOT
	const first, second, third = 1, 2, 3
	auto := netlink.MakeHandle(0x8001, 0)
	for name, test := range map[string]struct {
		has      []netlink.Qdisc
		inUse    int
		want     queue
		complete bool
	}{
		"nothing":               {nil, 0, queue{name: "noqueue 0:"}, false},
		"the kernel's":          {[]netlink.Qdisc{other("fq_codel", 0, root)}, 1, queue{name: "fq_codel 0:", waiting: 3, drops: 5}, false},
		"the kernel's, fq":      {[]netlink.Qdisc{fq(0, root)}, 1, queue{name: "fq 0:", fit: true, waiting: 3, drops: 5}, false},
		"somebody's":            {[]netlink.Qdisc{other("htb", 1<<16, root)}, 1, queue{owner: OwnerOther, name: "htb 1:", waiting: 3, drops: 5}, false},
		"somebody's fq":         {[]netlink.Qdisc{fq(1<<16, root)}, 1, queue{owner: OwnerOther, name: "fq 1:", fit: true, waiting: 3, drops: 5}, false},
		"our number, not our":   {[]netlink.Qdisc{other("htb", ours, root)}, 1, queue{owner: OwnerOther, name: "htb 4a5b:", waiting: 3, drops: 5}, false},
		"ours":                  {[]netlink.Qdisc{fq(ours, root)}, 1, queue{owner: OwnerUs, name: "fq 4a5b:", fit: true, waiting: 3, drops: 5}, true},
		"ours, changed":         {[]netlink.Qdisc{paced}, 1, queue{owner: OwnerUs, name: "fq 4a5b:", waiting: 3, drops: 5}, false},
		"ours, of another kind": {[]netlink.Qdisc{short}, 1, queue{owner: OwnerUs, name: "fq 4a5b:", waiting: 3, drops: 5}, false},
		"hooks beside": {[]netlink.Qdisc{
			fq(ours, root), other("clsact", 0xffff<<16, netlink.HANDLE_CLSACT),
		}, 1, queue{owner: OwnerUs, name: "fq 4a5b:", fit: true, clsact: true, waiting: 3, drops: 5}, true},
		"an ingress beside": {[]netlink.Qdisc{
			other("fq_codel", 0, root), other("ingress", 0xffff<<16, netlink.HANDLE_INGRESS),
		}, 1, queue{name: "fq_codel 0:", ingress: true, waiting: 3, drops: 5}, false},
		"the kernel's, many": {[]netlink.Qdisc{
			other("mq", 0, root), other("fq_codel", 0, first), other("fq_codel", 0, second),
		}, 0, queue{name: "mq 0:", many: true, fit: true, lacking: []uint32{1, 2}, waiting: 3, drops: 5}, false},
		"the kernel's, many, one of them somebody's": {[]netlink.Qdisc{
			other("mq", 0, root), other("fq_codel", 0, first), other("htb", 8<<16, second),
		}, 2, queue{owner: OwnerOther, name: "htb 8:", many: true, fit: true, lacking: []uint32{1, 2}, waiting: 3, drops: 5}, false},
		"ours, many": {[]netlink.Qdisc{
			other("mq", ours, root), fq(auto, ours|first), fq(auto, ours|second),
		}, 2, queue{owner: OwnerUs, name: "mq 4a5b:", many: true, fit: true, waiting: 3, drops: 5}, true},
		"ours, many, one in use more": {[]netlink.Qdisc{
			other("mq", ours, root), fq(auto, ours|first), fq(auto, ours|second),
		}, third, queue{owner: OwnerUs, name: "mq 4a5b:", many: true, fit: true, lacking: []uint32{3}, waiting: 3, drops: 5}, false},
		"ours, many, one the kernel's": {[]netlink.Qdisc{
			other("mq", ours, root), fq(auto, ours|first), fq(0, ours|second),
		}, 1, queue{owner: OwnerUs, name: "mq 4a5b:", many: true, fit: true, lacking: []uint32{2}, waiting: 3, drops: 5}, false},
		"ours, many, one somebody's": {[]netlink.Qdisc{
			other("mq", ours, root), fq(auto, ours|first), other("tbf", 8<<16, ours|second), fq(auto, ours|third),
		}, 1, queue{owner: OwnerOther, name: "tbf 8:", many: true, fit: true, lacking: []uint32{2}, waiting: 3, drops: 5}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := queueOf(test.has, test.inUse)
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(queue{})); diff != "" {
				t.Errorf("queue (-want +got):\n%s", diff)
			}
			if got.complete() != test.complete {
				t.Errorf("complete: %v", got.complete())
			}
		})
	}
}
