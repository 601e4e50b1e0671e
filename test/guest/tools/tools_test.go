//go:build e2e

// Package tools tests the guest's tools in a real guest, on Debian's kernel, against the
// programs that hosts put on taps; and what is shipped with them.
package tools

import (
	"bufio"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Packets that init.sh sends without the tools and with them, 4,000 a second: four to a
// window. In the first half second the program does not know yet that they are so many:
// those before warm are not counted.
const baseline, sent, warm = 2000, 5500, 2500

// The tools' whole life: the host answers and both halves come into force, packets are
// sent in fewer kicks and in order, the host's agent goes and nothing is held, and the
// tools end in each way that there is.
func TestToolsInAGuest(t *testing.T) {
	b := newBench(t)
	kicks, shown := map[string]int{}, map[string]string{}
	var heard <-chan error
	for lines := bufio.NewScanner(b.console); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		t.Log(line)
		words := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "SHOW "):
			shown[words[1]] = strings.Join(words[2:], " ")
		case strings.HasPrefix(line, "SENT "):
			b.must(<-heard)
		case strings.HasPrefix(line, "AWAITED NotAllowed "):
			// The lease ends, and what the host answered last stands for ten seconds. By the
			// guest's clock, which does not run ahead.
			ms, err := strconv.Atoi(words[2])
			b.must(err)
			if took := time.Duration(ms) * time.Millisecond; took > leased+10*time.Second {
				t.Errorf("the tools hold for %v after the host's agent went", took)
			}
		case strings.HasPrefix(line, "STEP "):
			kicks[words[1]] = b.kicks()
			switch words[1] {
			case "baseline":
				heard = b.hear(baseline)
			case "sending":
				heard = b.hear(sent)
			case "lapse":
				b.paused.Store(true)
			case "renew":
				b.paused.Store(false)
			}
		}
	}
	if _, ended := kicks["end"]; !ended {
		t.Fatal("the guest did not come to the end")
	}
	without, with := kicks["held"]-kicks["baseline"], kicks["sent"]-kicks["warm"]
	ratio := float64(with) / (sent - warm) / (float64(without) / baseline)
	t.Logf("kicks: %d for %d packets without, %d for %d with a window of 1 ms", without, baseline, with, sent-warm)
	t.Logf("figure guest_tx_kick_ratio_1ms %.4g with over without", ratio)
	if ratio > mostKicks {
		t.Errorf("%.2f times as many kicks, want at most %v", ratio, mostKicks)
	}
	const none, held = "fq_codel,0 0 0", "clsact,ffff+fq,4a5b"
	if diff := cmp.Diff(map[string]string{
		"untouched": none, "held": held + " 0 0", "lapsed": held + " 0 0",
		"deferring": held + " 2 1000000", "dead": held + " 2 1000000", "restored": none,
		"again": held + " 2 1000000", "successor": none, "terminated": none,
	}, shown); diff != "" {
		t.Errorf("what the kernel had (-want +got):\n%s", diff)
	}
}
