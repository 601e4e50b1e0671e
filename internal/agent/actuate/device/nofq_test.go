//go:build !fq

package device

import (
	"strings"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/agent/actuate"
	"github.com/joulevirt/joulevirt/internal/host/linux"
)

// A kernel that lacks what it takes is left as it was found. Those that have it are
// tested with the tag fq.
func TestRealKernelWithoutFq(t *testing.T) {
	r := newRealTaps(t)
	a := r.start(t.TempDir(), "")
	facts, err := a.host.Facts()
	if err != nil {
		t.Fatal(err)
	}
	missing := ""
	for _, capability := range facts.Capabilities {
		if capability.Name == linux.CapabilityBuffering && !capability.Available {
			missing = capability.Message
		}
	}
	if missing == "" {
		t.Skip("this kernel can buffer: run these tests with -tags fq")
	}
	before := r.has()
	for range 3 {
		got := r.want(a, window(time.Millisecond), actuate.Unsupported)
		if !strings.Contains(got.Message, missing) || got.Changed != 0 {
			t.Errorf("%+v, want %q", got, missing)
		}
	}
	r.want(a, nil, actuate.Undone)
	if err := a.actuator.Restore(); err != nil {
		t.Error(err)
	}
	if after := r.has(); after != before || len(a.journal.Content().Taps) != 0 {
		t.Errorf("the tap had\n%s\nand has\n%s\njournal %v", before, after, a.journal.Content().Taps)
	}
}
