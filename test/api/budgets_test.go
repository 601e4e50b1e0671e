package api

import "strings"

// changeTimeRows are of the times in which changes are made, or not: of windows and of
// freezes alike.
func changeTimeRows(name string) []row {
	times := "spec.budgets." + name
	window := func(fields string) string { return `budgets: {` + name + `: [{` + fields + `}]}` }
	return []row{{
		field:   times,
		rule:    "maxItems",
		accepts: []string{`budgets: {` + name + `: ` + repeated(16, "{schedule: %d 1 * * *, duration: 1h}") + `}`},
		refuses: []string{`budgets: {` + name + `: ` + repeated(17, "{schedule: %d 1 * * *, duration: 1h}") + `}`},
	}, {
		field:   times + "[].schedule",
		rule:    "schedule must have five cron fields with one space between, such as 0 22 * * 1-5",
		accepts: []string{window(`schedule: 0 22 * * 1-5, duration: 8h`), window(`schedule: "*/30 0,12 1 JAN MON-FRI", duration: 8h`)},
		refuses: []string{
			window(`schedule: 22 * * 1-5, duration: 8h`), window(`schedule: 0 0 22 * * 1-5, duration: 8h`),
			window(`schedule: "@daily", duration: 8h`), window(`schedule: "", duration: 8h`),
		},
	}, {
		field:   times + "[].schedule",
		rule:    "maxLength",
		accepts: []string{window(`schedule: ` + strings.Repeat("0", 120) + ` 1 * * *, duration: 8h`)},
		refuses: []string{window(`schedule: ` + strings.Repeat("0", 121) + ` 1 * * *, duration: 8h`)},
	}, {
		field:   times + "[].duration",
		rule:    "duration must be a duration from 1m to 168h, such as 8h",
		accepts: []string{window(`schedule: 0 22 * * *, duration: 1m`), window(`schedule: 0 22 * * *, duration: 168h`)},
		refuses: []string{window(`schedule: 0 22 * * *, duration: 59s`), window(`schedule: 0 22 * * *, duration: 168h1s`), window(`schedule: 0 22 * * *, duration: night`)},
	}, {
		field:   times + "[].duration",
		rule:    "maxLength",
		accepts: []string{window(`schedule: 0 22 * * *, duration: ` + strings.Repeat("0", 30) + `1h`)},
		refuses: []string{window(`schedule: 0 22 * * *, duration: ` + strings.Repeat("0", 31) + `1h`)},
	}}
}

// planChangeRows are of what a plan remembers of changes and recommendations.
func planChangeRows() []row {
	const at = `time: "2026-01-01T00:00:00Z"`
	return []row{{
		field:   "spec.recentChanges",
		rule:    "maxItems",
		accepts: []string{`recentChanges: ` + repeated(64, `{`+at+`, vms: 1%d}`)},
		refuses: []string{`recentChanges: ` + repeated(65, `{`+at+`, vms: 1%d}`)},
	}, {
		field:   "spec.recentChanges[].vms",
		rule:    "minimum",
		accepts: []string{`recentChanges: [{` + at + `, vms: 1}]`},
		refuses: []string{`recentChanges: [{` + at + `, vms: 0}]`},
	}, {
		field:   "spec.digest",
		rule:    "maxLength",
		accepts: []string{`digest: ` + strings.Repeat("d", 64)},
		refuses: []string{`digest: ` + strings.Repeat("d", 65)},
	}, {
		field:   "spec.replacedRevision",
		rule:    "maxLength",
		accepts: []string{`replacedRevision: ` + strings.Repeat("r", 64)},
		refuses: []string{`replacedRevision: ` + strings.Repeat("r", 65)},
	}}
}
