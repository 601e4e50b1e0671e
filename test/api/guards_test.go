package api

import (
	"fmt"
	"strings"
)

// alertRows are those of guardrails.alerts.
func alertRows() []row {
	alerts := func(items ...string) string { return `guardrails: {alerts: [` + strings.Join(items, ", ") + `]}` }
	named := func(name string) string { return fmt.Sprintf(`{name: %q, query: up}`, name) }
	query := func(query string) string { return alerts(fmt.Sprintf(`{name: a, query: %q}`, query)) }
	levers := func(levers string) string { return alerts(`{name: a, query: up, levers: [` + levers + `]}`) }
	var eight []string
	for i := range 8 {
		eight = append(eight, named(fmt.Sprintf("a%d", i)))
	}
	const field = "spec.guardrails.alerts"
	return []row{{
		field: field, rule: "maxItems",
		accepts: []string{alerts(eight...)}, refuses: []string{alerts(append(eight, named("one-more"))...)},
	}, {
		field: field, rule: "unique",
		accepts: []string{alerts(named("a"), named("b"))}, refuses: []string{alerts(named("a"), named("a"))},
	}, {
		field: field + "[].name", rule: "pattern",
		accepts: []string{alerts(named("Checkout-slow_2"))}, refuses: []string{alerts(named("")), alerts(named("2slow")), alerts(named("too slow")), alerts(named("slow-"))},
	}, {
		field: field + "[].name", rule: "maxLength",
		accepts: []string{alerts(named(strings.Repeat("a", 63)))}, refuses: []string{alerts(named(strings.Repeat("a", 64)))},
	}, {
		field: field + "[].query", rule: "minLength",
		accepts: []string{query("up")}, refuses: []string{query("")},
	}, {
		field: field + "[].query", rule: "maxLength",
		accepts: []string{query(strings.Repeat("u", 4096))}, refuses: []string{query(strings.Repeat("u", 4097))},
	}, {
		field: field + "[].levers", rule: "maxItems",
		accepts: []string{levers("Affinity, Slice, Buffering, Shaping, TrafficShare")}, refuses: []string{levers("Affinity, Slice, Buffering, Shaping, TrafficShare, Affinity")},
	}, {
		field: field + "[].levers", rule: "unique",
		accepts: []string{levers("Affinity, Slice")}, refuses: []string{levers("Affinity, Affinity")},
	}, {
		field: field + "[].levers[]", rule: "enum",
		accepts: []string{levers("TrafficShare")}, refuses: []string{levers("Sleep")},
	}}
}

// planWithdrawnRows are those of what was withdrawn.
func planWithdrawnRows() []row {
	item := func(change string) string {
		return fmt.Sprintf(`{lever: Affinity, sign: Steal, time: "2026-01-01T00:00:00Z", until: "2026-01-01T00:05:00Z", count: 1%s}`, change)
	}
	withdrawn := func(items ...string) string { return `withdrawn: [` + strings.Join(items, ", ") + `]` }
	with := func(field, value string) string {
		all := map[string]string{"lever": "Affinity", "sign": "Steal", "time": `"2026-01-01T00:00:00Z"`, "count": "1"}
		all[field] = value
		var parts []string
		for name, value := range all {
			parts = append(parts, name+": "+value)
		}
		return withdrawn(`{` + strings.Join(parts, ", ") + `}`)
	}
	var all []string
	for range 256 {
		all = append(all, item(""))
	}
	const field = "spec.withdrawn"
	return []row{{
		field: field, rule: "maxItems",
		accepts: []string{withdrawn(all...)}, refuses: []string{withdrawn(append(all, item(""))...)},
	}, {
		field: field + "[].lever", rule: "enum",
		accepts: []string{with("lever", "Slice")}, refuses: []string{with("lever", "Sleep")},
	}, {
		field: field + "[].sign", rule: "enum",
		accepts: []string{with("sign", "Readiness")}, refuses: []string{with("sign", "Smell")},
	}, {
		field: field + "[].alert", rule: "maxLength",
		accepts: []string{withdrawn(item(", alert: " + strings.Repeat("a", 63)))}, refuses: []string{withdrawn(item(", alert: " + strings.Repeat("a", 64)))},
	}, {
		field: field + "[].count", rule: "minimum",
		accepts: []string{with("count", "0")}, refuses: []string{with("count", "-1")},
	}, {
		field: field + "[].count", rule: "maximum",
		accepts: []string{with("count", "10")}, refuses: []string{with("count", "11")},
	}, {
		field: field + "[].message", rule: "maxLength",
		accepts: []string{withdrawn(item(", message: " + strings.Repeat("a", 256)))}, refuses: []string{withdrawn(item(", message: " + strings.Repeat("a", 257)))},
	}}
}
