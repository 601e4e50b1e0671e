package api

import (
	"fmt"
	"strings"
)

func planTrialRows() []row {
	item := func(lever, length, washOut, blocks string) string {
		return fmt.Sprintf(`{lever: %s, seed: 1, start: "2026-01-01T00:00:00Z", blockLength: %s, washOut: %s, blocks: %s}`, lever, length, washOut, blocks)
	}
	trials := func(items ...string) string { return `trials: [` + strings.Join(items, ", ") + `]` }
	blocks := func(blocks string) string { return trials(item("Buffering", "5m", "30s", blocks)) }
	length := func(length string) string { return trials(item("Buffering", length, "0s", "1")) }
	washOut := func(washOut string) string { return trials(item("Buffering", "5m", washOut, "1")) }
	a, b := item("Affinity", "5m", "30s", "1"), item("Slice", "5m", "30s", "1")
	var all []string
	for _, lever := range []string{"TrafficShare", "Affinity", "Slice", "Buffering", "Shaping"} {
		all = append(all, item(lever, "5m", "30s", "1"))
	}
	return []row{{
		field: "spec.trials", rule: "unique",
		accepts: []string{trials(a, b)}, refuses: []string{trials(a, a)},
	}, {
		field: "spec.trials", rule: "maxItems",
		accepts: []string{trials(all...)}, refuses: []string{trials(append(all, a)...)},
	}, {
		field: "spec.trials[].lever", rule: "enum",
		accepts: []string{trials(a)}, refuses: []string{trials(item("Sleep", "5m", "30s", "1"))},
	}, {
		field: "spec.trials[].blocks", rule: "minimum",
		accepts: []string{blocks("1")}, refuses: []string{blocks("0")},
	}, {
		field: "spec.trials[].blocks", rule: "maximum",
		accepts: []string{blocks("1024")}, refuses: []string{blocks("1025")},
	}, {
		field: "spec.trials[].offBlocks", rule: "unique",
		accepts: []string{blocks("4, offBlocks: [0, 3]")}, refuses: []string{blocks("4, offBlocks: [3, 3]")},
	}, {
		field: "spec.trials[].offBlocks", rule: "maxItems",
		accepts: []string{blocks("1024, offBlocks: " + repeated(1024, "%d"))}, refuses: []string{blocks("1024, offBlocks: " + repeated(1025, "%d"))},
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
	}, {
		field: "spec.trials[].blockLength", rule: "maxLength",
		accepts: []string{length(strings.Repeat("0", 30) + "5m")}, refuses: []string{length(strings.Repeat("0", 31) + "5m")},
	}, {
		field: "spec.trials[].washOut", rule: "maxLength",
		accepts: []string{washOut(strings.Repeat("0", 30) + "5s")}, refuses: []string{washOut(strings.Repeat("0", 31) + "5s")},
	}}
}
