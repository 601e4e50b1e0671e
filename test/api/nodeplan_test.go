package api

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/joulevirt/joulevirt/internal/units"
)

func nodePlans() table {
	return table{
		minimal: `{policy: p, mode: Enforce, revision: r, apply: true, reason: Planned}`,
		rows:    slices.Concat(planBufferingRows(), planShapingRows(), planTrialRows()),
	}
}

func planBufferingRows() []row {
	buffering := func(fields string) string {
		return `vms: [{namespace: a, name: b, podUID: u, buffering: {onPacketsPerSecond: 1, ` + fields + `}}]`
	}
	window := func(us int) string { return buffering(fmt.Sprintf(`windowMicroseconds: %d`, us)) }
	flood := func(us int) string { return buffering(fmt.Sprintf(`floodWindowMicroseconds: %d`, us)) }
	return []row{{
		field:   "spec.vms[].buffering",
		rule:    "buffering must have windowMicroseconds, floodWindowMicroseconds or both",
		accepts: []string{window(125), flood(500), buffering(`windowMicroseconds: 1000, floodWindowMicroseconds: 500`)},
		refuses: []string{buffering(``)},
	}}
}

func planShapingRows() []row {
	turn := func(offset int) string {
		return fmt.Sprintf(`vms: [{namespace: a, name: b, podUID: u, shaping: {turn: {periodMilliseconds: 1000, offsetMilliseconds: %d, lengthMilliseconds: 50, trickleBitsPerSecond: 256000}}}]`, offset)
	}
	return []row{{
		field: "spec.vms[].shaping.turn", rule: "offsetMilliseconds and lengthMilliseconds must lie within periodMilliseconds",
		accepts: []string{turn(950)}, refuses: []string{turn(951)},
	}}
}

func planTrialRows() []row {
	trial := func(length, washOut, blocks string) string {
		return fmt.Sprintf(`trials: [{lever: Buffering, seed: 1, start: "2026-01-01T00:00:00Z", blockLength: %s, washOut: %s, blocks: %s}]`, length, washOut, blocks)
	}
	blocks := func(blocks string) string { return trial("5m", "30s", blocks) }
	length := func(length string) string { return trial(length, "0s", "1") }
	washOut := func(washOut string) string { return trial("5m", washOut, "1") }
	return []row{{
		field: "spec.trials[].lever", rule: "lever must be Affinity, Slice, Buffering or Shaping",
		accepts: []string{blocks("1")}, refuses: []string{strings.Replace(blocks("1"), "Buffering", "TrafficShare", 1)},
	}, {
		field: "spec.trials[]", rule: "offBlocks must each be from 0 to below blocks",
		accepts: []string{blocks("4, offBlocks: [3]")}, refuses: []string{blocks("4, offBlocks: [4]"), blocks("4, offBlocks: [-1]")},
	}, {
		field: "spec.trials[]", rule: "washOut must be shorter than blockLength",
		accepts: []string{washOut("299s")}, refuses: []string{washOut("5m"), washOut("1h")},
	}, {
		field: "spec.trials[].blockLength", rule: "blockLength must be a duration from 1m to 24h, such as 10m",
		accepts: []string{length("1m"), length("24h")}, refuses: []string{length("59s"), length("24h1s"), length("-5m"), length("soon")},
	}, {
		field: "spec.trials[].washOut", rule: "washOut must be a duration, such as 30s",
		accepts: []string{washOut("0s"), washOut("1m30s")}, refuses: []string{washOut("-1s"), washOut("soon")},
	}}
}

// longestCPUList is the bound of the lists of CPUs.
const longestCPUList = 32 << 10

// TestCPUListsFit: no set of CPUs is too long to be reported. The longest lists have pairs
// with a gap after each.
func TestCPUListsFit(t *testing.T) {
	var pairs, single []int
	for cpu := range units.MaxCPUs {
		if cpu%3 < 2 {
			pairs = append(pairs, cpu)
		}
		if cpu%2 == 0 {
			single = append(single, cpu)
		}
	}
	for _, cpus := range [][]int{pairs, single} {
		if text := units.NewCPUSet(cpus...).String(); len(text) > longestCPUList {
			t.Errorf("%.20s... has %d characters", text, len(text))
		}
	}
}
