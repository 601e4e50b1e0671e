// Package buffering runs the tests of packet buffering on a real kernel with fq and
// without tcx, in a guest on an emulated CPU.
package buffering

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/test/guest"
	"github.com/joulevirt/joulevirt/test/guest/gobuild"
)

// script runs in the guest: what is done to devices, by clsact, and the rules of the
// program that the verifier of this kernel has to take. The names of tests that need fq
// have it in them, or are those of buffered taps.
const script = `set -e
uname -r
datapath.test -test.v -test.run 'Fq|TestProgram(IsVerified|Lease|Stamps|KeepsOrder)$'
datapath.test -test.v -test.run '^Test(AttachAndRemove|Others.*|Clsact.*|Killed.*TakenOver|OtherVersion.*)$/newest_pinned'
linux.test -test.v -test.run 'Buffered|RealTap'
buffer.test -test.v -test.run TestReal
`

// module is this module's name.
const module = "github.com/joulevirt/joulevirt/"

func compile(t *testing.T, pkg, output string) {
	t.Helper()
	if err := gobuild.Tests(t.Context(), module+pkg, "fq", output); err != nil {
		t.Fatal(err)
	}
}

// Devices with fq and clsact, on Debian's kernel.
func TestBufferingOnAKernelWithFq(t *testing.T) {
	dir := t.TempDir()
	programs := map[string]string{
		"datapath.test": filepath.Join(dir, "datapath"), "linux.test": filepath.Join(dir, "linux"),
		"buffer.test": filepath.Join(dir, "buffer"),
	}
	compile(t, "internal/datapath", programs["datapath.test"])
	compile(t, "internal/host/linux", programs["linux.test"])
	compile(t, "internal/agent/actuate/buffer", programs["buffer.test"])
	// It takes a minute or two of one core.
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	console, err := guest.Run(ctx, guest.Options{}, guest.Job{
		Programs: programs,
		Modules:  []string{"veth", "bridge", "tun", "sch_fq", "sch_htb", "sch_tbf", "sch_ingress", "cls_bpf"},
		Script:   script, MemoryMiB: 384,
	})
	t.Log(console)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"--- PASS: TestFqHoldsOnTheGrid", "--- PASS: TestFqHolderIsKilledUnderLoad", "--- PASS: TestBufferedTap", "--- PASS: TestRealAgentIsKilled"} {
		if !strings.Contains(console, want) {
			t.Errorf("the console does not show %q", want)
		}
	}
}
