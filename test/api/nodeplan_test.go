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
	trial := func(length string) string {
		return fmt.Sprintf(`trials: [{lever: Buffering, seed: 1, slotLength: %s, oneIn: 2}]`, length)
	}
	return []row{{
		field: "spec.trials[].lever", rule: "lever must be Affinity, Slice, Buffering or Shaping",
		accepts: []string{trial("7m")}, refuses: []string{strings.Replace(trial("7m"), "Buffering", "TrafficShare", 1)},
	}, {
		field: "spec.trials[].slotLength", rule: "slotLength must be a duration from 1m to 1h, such as 7m",
		accepts: []string{trial("1m"), trial("1h")}, refuses: []string{trial("59s"), trial("1h1s"), trial("-5m"), trial("soon")},
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
