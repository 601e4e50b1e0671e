//go:build e2e && !held

// Package held measures what it changes for a guest that its packets are held: interrupts of its
// card, time on the way, and what TCP carries. A machine on an emulated CPU has two cards that are
// connected, one as a host's towards a VM and one as the VM's. Its clock counts instructions: however
// busy this machine is, it measures the same.
package held

import (
	"path/filepath"
	"testing"

	"github.com/joulevirt/joulevirt/test/guest"
	"github.com/joulevirt/joulevirt/test/guest/gobuild"
)

// script runs in the machine.
const script = `set -e
uname -r
mount -t bpf none /sys/fs/bpf
held.test -test.v
`

func TestHeldPackets(t *testing.T) {
	tools := filepath.Join(t.TempDir(), "joulevirt-guest")
	if err := gobuild.Static(t.Context(), "github.com/joulevirt/joulevirt/cmd/joulevirt-guest", tools); err != nil {
		t.Fatal(err)
	}
	guest.RunTests(t, "held", map[string]string{"held.test": "test/guest/held"}, guest.Job{
		Programs: map[string]string{"joulevirt-guest": tools}, Cards: true,
		Modules: []string{"virtio_pci", "virtio_net", "sch_fq", "sch_ingress", "cls_bpf"},
		Script:  script, MemoryMiB: 384,
	}, "TestHeld")
}
