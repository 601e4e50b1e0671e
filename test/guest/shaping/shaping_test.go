// Package shaping runs the tests of shaping on a real kernel with fq, in a
// guest on an emulated CPU.
package shaping

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/test/guest"
	"github.com/joulevirt/joulevirt/test/guest/gobuild"
)

// script runs in the guest. The names of tests that need fq have it in them.
const script = `set -e
uname -r
linux.test -test.v -test.run 'Fq|Stamp|Trickle|Wait|Kick|RealShape|RealForeign|RealSuccessor'
shape.test -test.v -test.run TestReal
echo 'the same by htb'
JOULEVIRT_TEST_WITHOUT_FQ=1 shape.test -test.v -test.run 'TestRealVMsTakeTurns|TestRealAgentIsKilled'
`

// module is this module's name.
const module = "github.com/joulevirt/joulevirt/"

func compile(t *testing.T, pkg, output string) {
	t.Helper()
	if err := gobuild.Tests(t.Context(), module+pkg, "fq", output); err != nil {
		t.Fatal(err)
	}
}

// The tests of both mechanisms, on Debian's kernel: those of devices, and VMs
// that take turns, first by fq and then by htb.
func TestShapingOnAKernelWithFq(t *testing.T) {
	dir := t.TempDir()
	programs := map[string]string{"linux.test": filepath.Join(dir, "linux"), "shape.test": filepath.Join(dir, "shape")}
	compile(t, "internal/host/linux", programs["linux.test"])
	compile(t, "internal/agent/actuate/shape", programs["shape.test"])
	// It takes half a minute on two cores that others use too.
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	console, err := guest.Run(ctx, guest.Options{}, guest.Job{
		Programs: programs,
		Modules:  []string{"veth", "bridge", "sch_fq", "sch_htb", "sch_tbf", "sch_ingress", "cls_bpf"},
		Script:   script, MemoryMiB: 256,
	})
	t.Log(console)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"--- PASS: TestFqShapeAndUnshape", "--- PASS: TestRealShapeAndUnshape", "--- PASS: TestRealVMsTakeTurns",
		"turns by fq 4a59:", "turns by htb 4a56:",
	} {
		if !strings.Contains(console, want) {
			t.Errorf("the console does not show %q", want)
		}
	}
}
