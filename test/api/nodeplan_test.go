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
		full: `
policy: p
mode: Enforce
revision: r
apply: true
reason: Planned
pools: {networkCPUs: "0", computeCPUs: "1"}
vms:
- namespace: shop
  name: web
  podUID: a
  affinity: {vcpus: [{vcpu: 0, cpus: 0-1}]}
  slice: {microseconds: 3000}
  buffering: {windowMicroseconds: 250, onPacketsPerSecond: 8000, smallPacketServices: [{protocol: UDP, port: 53}]}
  shaping: {ceilingBitsPerSecond: 1000000000, turn: {periodMilliseconds: 4000, offsetMilliseconds: 0, lengthMilliseconds: 1000, trickleBitsPerSecond: 256000}}
  reasons: [{lever: Affinity, reason: Pinned}]
recentChanges: [{time: "2026-01-01T00:00:00Z", vms: 1}]
trials:
- lever: Affinity
  seed: 1
  start: "2026-01-01T00:00:00Z"
  blockLength: 5m
  washOut: 30s
  blocks: 2
  offBlocks: [1]
  otherwise: true
withdrawn: [{podUID: a, lever: Affinity, sign: Steal, time: "2026-01-01T00:00:00Z", until: "2026-01-01T00:05:00Z", count: 1}]`,
		rows: slices.Concat(planRows(), planPoolRows(), planThreadRows(), planVMRows(), planBufferingRows(), planShapingRows(), planTrialRows(), planChangeRows(), planWithdrawnRows()),
	}
}

func planRows() []row {
	return []row{{
		field:   "spec.policy",
		rule:    "minLength",
		accepts: []string{`policy: p`},
		refuses: []string{`policy: ""`},
	}, {
		field:   "spec.mode",
		rule:    "enum",
		accepts: []string{`mode: Observe`},
		refuses: []string{`mode: Off`},
	}, {
		field:   "spec.revision",
		rule:    "minLength",
		accepts: []string{`revision: r`},
		refuses: []string{`revision: ""`},
	}, {
		field:   "spec.revision",
		rule:    "maxLength",
		accepts: []string{`revision: ` + strings.Repeat("r", 64)},
		refuses: []string{`revision: ` + strings.Repeat("r", 65)},
	}, {
		field:   "spec.reason",
		rule:    "maxLength",
		accepts: []string{`reason: ` + strings.Repeat("R", 64)},
		refuses: []string{`reason: ` + strings.Repeat("R", 65)},
	}, {
		field:   "spec.message",
		rule:    "maxLength",
		accepts: []string{`message: ` + strings.Repeat("m", 1024)},
		refuses: []string{`message: ` + strings.Repeat("m", 1025)},
	}, {
		field:   "spec.excludedCPUs",
		rule:    "maxLength",
		accepts: []string{`excludedCPUs: 0-1,64-65`, `excludedCPUs: "` + strings.Repeat("0", longestCPUList) + `"`},
		refuses: []string{`excludedCPUs: "` + strings.Repeat("0", longestCPUList+1) + `"`},
	}, {
		field:   "spec.excludedCPUs",
		rule:    "pattern",
		accepts: []string{`excludedCPUs: ""`, `excludedCPUs: "3"`},
		refuses: []string{`excludedCPUs: none`, `excludedCPUs: "0,"`},
	}, {
		field:   "spec.vms",
		rule:    "maxItems",
		accepts: []string{`vms: ` + repeated(1024, "{namespace: a, name: b, podUID: u%d}")},
		refuses: []string{`vms: ` + repeated(1025, "{namespace: a, name: b, podUID: u%d}")},
	}}
}

// longestCPUList is the bound of the lists of CPUs.
const longestCPUList = 32 << 10

// TestCPUListsFit: no set of CPUs is too long to be told. The longest lists have pairs
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

func planThreadRows() []row {
	var rows []row
	for _, field := range []string{"emulatorCPUs", "ioThreadCPUs", "vhostCPUs"} {
		threads := func(list string) string {
			return `vms: [{namespace: a, name: b, podUID: u, affinity: {` + field + `: "` + list + `"}}]`
		}
		rows = append(rows, row{
			field: "spec.vms[].affinity." + field, rule: "pattern",
			accepts: []string{threads("0-1,64-65"), threads("")}, refuses: []string{threads("0,"), threads("all")},
		}, row{
			field: "spec.vms[].affinity." + field, rule: "maxLength",
			accepts: []string{threads(strings.Repeat("0", longestCPUList))}, refuses: []string{threads(strings.Repeat("0", longestCPUList+1))},
		})
	}
	return rows
}

func planPoolRows() []row {
	var rows []row
	for _, field := range []string{"networkCPUs", "computeCPUs"} {
		other := map[string]string{"networkCPUs": "computeCPUs", "computeCPUs": "networkCPUs"}[field]
		pools := func(list string) string { return `pools: {` + other + `: "9", ` + field + `: "` + list + `"}` }
		rows = append(rows, row{
			field: "spec.pools." + field, rule: "pattern",
			accepts: []string{pools("0-1,64-65")}, refuses: []string{pools(""), pools("0,"), pools("all")},
		}, row{
			field: "spec.pools." + field, rule: "maxLength",
			accepts: []string{pools(strings.Repeat("0", longestCPUList))}, refuses: []string{pools(strings.Repeat("0", longestCPUList+1))},
		})
	}
	return rows
}

func planVMRows() []row {
	vm := func(fields string) string {
		return `vms: [{namespace: a, name: b, podUID: u, ` + fields + `}]`
	}
	pins := func(list string) string { return vm(`affinity: {vcpus: ` + list + `}`) }
	return []row{{
		field:   "spec.vms[].affinity.vcpus",
		rule:    "maxItems",
		accepts: []string{pins(repeated(512, `{vcpu: %d, cpus: "0"}`))},
		refuses: []string{pins(repeated(513, `{vcpu: %d, cpus: "0"}`))},
	}, {
		field:   "spec.vms[].affinity.vcpus",
		rule:    "unique",
		accepts: []string{pins(`[{vcpu: 0, cpus: "0"}, {vcpu: 1, cpus: "0"}]`)},
		refuses: []string{pins(`[{vcpu: 0, cpus: "0"}, {vcpu: 0, cpus: "1"}]`)},
	}, {
		field:   "spec.vms[].affinity.vcpus[].vcpu",
		rule:    "minimum",
		accepts: []string{pins(`[{vcpu: 0, cpus: "0"}]`)},
		refuses: []string{pins(`[{vcpu: -1, cpus: "0"}]`)},
	}, {
		field:   "spec.vms[].affinity.vcpus[].cpus",
		rule:    "pattern",
		accepts: []string{pins(`[{vcpu: 0, cpus: "0-1,64-65"}]`)},
		refuses: []string{pins(`[{vcpu: 0, cpus: ""}]`), pins(`[{vcpu: 0, cpus: "0,"}]`)},
	}, {
		field:   "spec.vms[].affinity.vcpus[].cpus",
		rule:    "maxLength",
		accepts: []string{pins(`[{vcpu: 0, cpus: "` + strings.Repeat("0", longestCPUList) + `"}]`)},
		refuses: []string{pins(`[{vcpu: 0, cpus: "` + strings.Repeat("0", longestCPUList+1) + `"}]`)},
	}, {
		field:   "spec.vms[].pool",
		rule:    "enum",
		accepts: []string{vm(`pool: Network`), vm(`pool: Compute`)},
		refuses: []string{vm(`pool: Storage`), vm(`pool: ""`)},
	}, {
		field:   "spec.vms[].slice.microseconds",
		rule:    "minimum",
		accepts: []string{vm(`slice: {microseconds: 100}`)},
		refuses: []string{vm(`slice: {microseconds: 99}`)},
	}, {
		field:   "spec.vms[].slice.microseconds",
		rule:    "maximum",
		accepts: []string{vm(`slice: {microseconds: 100000}`)},
		refuses: []string{vm(`slice: {microseconds: 100001}`)},
	}, {
		field:   "spec.vms[].reasons",
		rule:    "unique",
		accepts: []string{vm(`reasons: [{lever: Affinity, reason: A}, {lever: Slice, reason: A}]`)},
		refuses: []string{vm(`reasons: [{lever: Affinity, reason: A}, {lever: Affinity, reason: B}]`)},
	}, {
		field:   "spec.vms[].reasons[].lever",
		rule:    "enum",
		accepts: []string{vm(`reasons: [{lever: Affinity, reason: A}]`)},
		refuses: []string{vm(`reasons: [{lever: Pinning, reason: A}]`)},
	}, {
		field:   "spec.vms[].reasons[].reason",
		rule:    "maxLength",
		accepts: []string{vm(`reasons: [{lever: Affinity, reason: ` + strings.Repeat("A", 64) + `}]`)},
		refuses: []string{vm(`reasons: [{lever: Affinity, reason: ` + strings.Repeat("A", 65) + `}]`)},
	}, {
		field:   "spec.vms[].reasons[].message",
		rule:    "maxLength",
		accepts: []string{vm(`reasons: [{lever: Affinity, reason: A, message: ` + strings.Repeat("a", 256) + `}]`)},
		refuses: []string{vm(`reasons: [{lever: Affinity, reason: A, message: ` + strings.Repeat("a", 257) + `}]`)},
	}}
}

func planShapingRows() []row {
	shaping := func(fields string) string {
		return `vms: [{namespace: a, name: b, podUID: u, shaping: {` + fields + `}}]`
	}
	turn := func(period, offset, length, trickle int) string {
		return shaping(fmt.Sprintf(`turn: {periodMilliseconds: %d, offsetMilliseconds: %d, lengthMilliseconds: %d, trickleBitsPerSecond: %d}`,
			period, offset, length, trickle))
	}
	const hour, trickle = 3600000, 256000
	return []row{{
		field:   "spec.vms[].shaping.ceilingBitsPerSecond",
		rule:    "minimum",
		accepts: []string{shaping(`ceilingBitsPerSecond: 256000`)},
		refuses: []string{shaping(`ceilingBitsPerSecond: 255999`), shaping(`ceilingBitsPerSecond: 0`)},
	}, {
		field:   "spec.vms[].shaping.turn.periodMilliseconds",
		rule:    "minimum",
		accepts: []string{turn(100, 0, 50, trickle)},
		refuses: []string{turn(99, 0, 50, trickle)},
	}, {
		field:   "spec.vms[].shaping.turn.periodMilliseconds",
		rule:    "maximum",
		accepts: []string{turn(hour, 0, 50, trickle)},
		refuses: []string{turn(hour+1, 0, 50, trickle)},
	}, {
		field:   "spec.vms[].shaping.turn.offsetMilliseconds",
		rule:    "minimum",
		accepts: []string{turn(1000, 0, 50, trickle)},
		refuses: []string{turn(1000, -1, 50, trickle)},
	}, {
		field:   "spec.vms[].shaping.turn.offsetMilliseconds",
		rule:    "maximum",
		accepts: []string{turn(hour, hour, 50, trickle)},
		refuses: []string{turn(hour, hour+1, 50, trickle)},
	}, {
		field:   "spec.vms[].shaping.turn.lengthMilliseconds",
		rule:    "minimum",
		accepts: []string{turn(1000, 0, 10, trickle)},
		refuses: []string{turn(1000, 0, 9, trickle)},
	}, {
		field:   "spec.vms[].shaping.turn.lengthMilliseconds",
		rule:    "maximum",
		accepts: []string{turn(hour, 0, hour, trickle)},
		refuses: []string{turn(hour, 0, hour+1, trickle)},
	}, {
		field:   "spec.vms[].shaping.turn.trickleBitsPerSecond",
		rule:    "minimum",
		accepts: []string{turn(1000, 0, 50, trickle)},
		refuses: []string{turn(1000, 0, 50, trickle-1)},
	}}
}
