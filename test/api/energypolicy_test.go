package api

import (
	"slices"
	"strings"
)

func energyPolicies() table {
	return table{
		minimal: `mode: Observe`,
		rows:    slices.Concat(policyModeRows(), policyHostPowerRows(), policyDefaultsRows(), policyEnergyRows(), policyBoundRows(), changeTimeRows("windows"), changeTimeRows("freezes"), policyTariffRows()),
	}
}

func policyHostPowerRows() []row {
	hosts := func(fields string) string { return `{levers: [Placement], hostPower: {` + fields + `}}` }
	return []row{{
		field:   "spec",
		rule:    "spec.hostPower needs lever Placement, which empties hosts: add Placement to spec.levers or remove spec.hostPower",
		accepts: []string{hosts(`metal3: {namespace: metal3}`), `{levers: [Affinity]}`},
		refuses: []string{`hostPower: {metal3: {namespace: metal3}}`, `{levers: [Affinity], hostPower: {metal3: {namespace: metal3}}}`},
	}, {
		field:   "spec.hostPower",
		rule:    "spec.hostPower must have either metal3 or redfish: the provider that powers hosts",
		accepts: []string{hosts(`redfish: {secretNamespace: bmc}`), hosts(`redfish: {secretNamespace: bmc, insecureSkipVerify: true}`)},
		refuses: []string{hosts(``), hosts(`metal3: {namespace: a}, redfish: {secretNamespace: b}`)},
	}, {
		field:   "spec.hostPower.reserveNodes",
		rule:    "reserveNodes must be from 0 to 100",
		accepts: []string{hosts(`reserveNodes: 0, metal3: {namespace: a}`), hosts(`reserveNodes: 100, metal3: {namespace: a}`)},
		refuses: []string{hosts(`reserveNodes: -1, metal3: {namespace: a}`), hosts(`reserveNodes: 101, metal3: {namespace: a}`)},
	}}
}

func policyModeRows() []row {
	return []row{{
		field:   "spec",
		rule:    "spec.mode is required: set Observe to change nothing, Recommend to act on approval, or Enforce to act",
		accepts: []string{`{}`},
		refuses: []string{`mode: null`, `{mode: null, levers: [Affinity]}`},
	}, {
		field:   "spec",
		rule:    "spec.levers must name at least one lever in mode Recommend or Enforce: for example levers: [Affinity]",
		accepts: []string{`{mode: Observe}`, `{mode: Recommend, levers: [Affinity]}`},
		refuses: []string{`{mode: Enforce}`, `{mode: Recommend, levers: []}`},
	}, {
		field:   "spec",
		rule:    "spec.approvals is only for mode Recommend: remove it or set mode to Recommend",
		accepts: []string{`{mode: Recommend, levers: [Affinity], approvals: [r1]}`, `{mode: Observe, approvals: []}`},
		refuses: []string{`{mode: Enforce, levers: [Affinity], approvals: [r1]}`, `{approvals: [r1]}`},
	}, selectorRow("nodeSelector"), selectorRow("namespaceSelector")}
}

func selectorRow(field string) row {
	return row{
		field:   "spec." + field,
		rule:    field + ".matchExpressions must each be In or NotIn with values, or Exists or DoesNotExist without",
		accepts: []string{field + `: {}`, field + `: {matchExpressions: [{key: pool, operator: In, values: [a]}, {key: b, operator: Exists}]}`},
		refuses: []string{field + `: {matchExpressions: [{key: pool, operator: In}]}`, field + `: {matchExpressions: [{key: pool, operator: Gt, values: ["1"]}]}`},
	}
}

// policyDefaultsRows are those of the fields in a profile.
func policyDefaultsRows() []row {
	defaults := func(fields string) string { return `defaults: {` + fields + `}` }
	levels := func(fields string) string { return defaults(`serviceLevels: {` + fields + `}`) }
	return []row{{
		field:   "spec.defaults.latencyBudget",
		rule:    "latencyBudget must be a duration from 0s (never buffer) to 100ms, such as 500us",
		accepts: []string{defaults(``), defaults(`latencyBudget: 100ms`)},
		refuses: []string{defaults(`latencyBudget: 101ms`), defaults(`latencyBudget: fast`)},
	}, {
		field:   "spec.defaults.buffering.onPacketsPerSecond",
		rule:    "onPacketsPerSecond must be from 1000 to 10000000 packets per second",
		accepts: []string{defaults(`buffering: {onPacketsPerSecond: 1000}`)},
		refuses: []string{defaults(`buffering: {onPacketsPerSecond: 999}`)},
	}, {
		field:   "spec.defaults.serviceLevels.maxStealPercent",
		rule:    "maxStealPercent must be from 1 to 100 percent of one CPU",
		accepts: []string{levels(`maxStealPercent: 1`)},
		refuses: []string{levels(`maxStealPercent: 101`)},
	}, {
		field:   "spec.defaults.serviceLevels.maxDropsPerMillion",
		rule:    "maxDropsPerMillion must be from 0 to 1000000 packets per million",
		accepts: []string{levels(`maxDropsPerMillion: 0`)},
		refuses: []string{levels(`maxDropsPerMillion: -1`)},
	}, {
		field:   "spec.defaults.serviceLevels.minThroughputPercent",
		rule:    "minThroughputPercent must be from 1 to 100 percent of the VM's own baseline",
		accepts: []string{levels(`minThroughputPercent: 100`)},
		refuses: []string{levels(`minThroughputPercent: 0`)},
	}}
}

func policyEnergyRows() []row {
	prometheus := func(fields string) string {
		return `energy: {sources: [{type: Prometheus, prometheus: {` + fields + `}}]}`
	}
	const url = `url: "http://p:9090"`
	return []row{{
		field:   "spec.energy.sources[].freshness",
		rule:    "freshness must be a duration from 1s to 1h, such as 30s",
		accepts: []string{`energy: {sources: [{type: RAPL, freshness: 1s}]}`, `energy: {sources: [{type: RAPL, freshness: 1h}]}`},
		refuses: []string{`energy: {sources: [{type: RAPL, freshness: 999ms}]}`, `energy: {sources: [{type: RAPL, freshness: 61m}]}`, `energy: {sources: [{type: RAPL, freshness: new}]}`},
	}, {
		field:   "spec.energy.sources[]",
		rule:    "prometheus goes with type Prometheus: set both, or neither",
		accepts: []string{prometheus(url)},
		refuses: []string{`energy: {sources: [{type: Prometheus}]}`, `energy: {sources: [{type: RAPL, prometheus: {url: "http://p"}}]}`},
	}, {
		field:   "spec.energy.sources[].prometheus.url",
		rule:    "url must be an http or https URL, such as https://prometheus.monitoring.svc:9090",
		accepts: []string{prometheus(url), prometheus(`url: "https://[fd00::1]:9090/prom"`)},
		refuses: []string{prometheus(`url: "p:9090"`), prometheus(`url: "ftp://p"`), prometheus(`url: ""`)},
	}, {
		field:   "spec.energy.sources[].prometheus",
		rule:    "matchers narrow down Kepler's counters: with query, write the labels into the query",
		accepts: []string{prometheus(url + `, matchers: {namespace: kepler, job: kepler}`), prometheus(url + `, query: watts`)},
		refuses: []string{prometheus(url + `, query: watts, matchers: {job: kepler}`)},
	}, {
		field: "spec.energy.sources[].prometheus.matchers",
		rule:  "matchers must be names of labels, up to 63 letters, digits and underscores, and neither __name__ nor zone",
		accepts: []string{
			prometheus(url + `, matchers: {_a: b, c1: d, e: "f\"}", g: h, i: j, k: l, m: o, p: q}`),
			prometheus(url + `, matchers: {` + strings.Repeat("a", 63) + `: "` + strings.Repeat("b", 253) + `"}`),
		},
		refuses: []string{
			prometheus(url + `, matchers: {"a-b": c}`), prometheus(url + `, matchers: {"1a": b}`), prometheus(url + `, matchers: {"": b}`),
			prometheus(url + `, matchers: {'a="x"} or vector(1) #': b}`), prometheus(url + `, matchers: {__name__: b}`), prometheus(url + `, matchers: {zone: psys}`),
			prometheus(url + `, matchers: {` + strings.Repeat("a", 64) + `: b}`),
		},
	}}
}

// policyBoundRows are of the fields that bound what is done and how it is
// proven.
func policyBoundRows() []row {
	return []row{{
		field:   "spec.priority",
		rule:    "priority must be from -1000000 to 1000000",
		accepts: []string{`priority: -1000000`, `priority: 0`, `priority: 1000000`},
		refuses: []string{`priority: -1000001`, `priority: 1000001`},
	}, {
		field:   "spec.guardrails.maxCoreUtilizationPercent",
		rule:    "maxCoreUtilizationPercent must be from 10 to 100",
		accepts: []string{`guardrails: {maxCoreUtilizationPercent: 10}`, `guardrails: {maxCoreUtilizationPercent: 100}`},
		refuses: []string{`guardrails: {maxCoreUtilizationPercent: 9}`, `guardrails: {maxCoreUtilizationPercent: 101}`},
	}, {
		field:   "spec.guardrails.reservedCPUs",
		rule:    "reservedCPUs must be a CPU list with the lower number of a range first, such as 0-1,64-65",
		accepts: []string{`guardrails: {reservedCPUs: "0"}`, `guardrails: {reservedCPUs: "0-1,64-65"}`},
		refuses: []string{
			`guardrails: {reservedCPUs: ""}`, `guardrails: {reservedCPUs: "0, 1"}`, `guardrails: {reservedCPUs: "3-1"}`,
			`guardrails: {reservedCPUs: all}`, `guardrails: {reservedCPUs: "123456"}`,
		},
	}, {
		field:   "spec.budgets.maxNodesChanging",
		rule:    "maxNodesChanging must be 1 or more: to change nothing, set mode to Observe",
		accepts: []string{`budgets: {maxNodesChanging: 1}`},
		refuses: []string{`budgets: {maxNodesChanging: 0}`},
	}, {
		field:   "spec.budgets.maxMigrationsAtOnce",
		rule:    "maxMigrationsAtOnce must be from 1 to 20: to move nothing, remove Placement from spec.levers",
		accepts: []string{`budgets: {maxMigrationsAtOnce: 1}`, `budgets: {maxMigrationsAtOnce: 20}`},
		refuses: []string{`budgets: {maxMigrationsAtOnce: 0}`, `budgets: {maxMigrationsAtOnce: 21}`},
	}, {
		field:   "spec.budgets.maxMigrationsPerHour",
		rule:    "maxMigrationsPerHour must be from 1 to 100: to move nothing, remove Placement from spec.levers",
		accepts: []string{`budgets: {maxMigrationsPerHour: 1}`, `budgets: {maxMigrationsPerHour: 100}`},
		refuses: []string{`budgets: {maxMigrationsPerHour: 0}`, `budgets: {maxMigrationsPerHour: 101}`},
	}, {
		field:   "spec.guardrails.maxNodeCPUPercent",
		rule:    "maxNodeCPUPercent must be from 10 to 85",
		accepts: []string{`guardrails: {maxNodeCPUPercent: 10}`, `guardrails: {maxNodeCPUPercent: 85}`},
		refuses: []string{`guardrails: {maxNodeCPUPercent: 9}`, `guardrails: {maxNodeCPUPercent: 86}`},
	}, {
		field:   "spec.guardrails.maxNodeMemoryPercent",
		rule:    "maxNodeMemoryPercent must be from 10 to 100",
		accepts: []string{`guardrails: {maxNodeMemoryPercent: 10}`, `guardrails: {maxNodeMemoryPercent: 100}`},
		refuses: []string{`guardrails: {maxNodeMemoryPercent: 9}`, `guardrails: {maxNodeMemoryPercent: 101}`},
	}, {
		field:   "spec.verification.holdBackPercent",
		rule:    "holdBackPercent must be from 0 to 33",
		accepts: []string{`verification: {holdBackPercent: 0}`, `verification: {holdBackPercent: 33}`},
		refuses: []string{`verification: {holdBackPercent: -1}`, `verification: {holdBackPercent: 51}`},
	}, {
		field:   "spec.recommendationValidity",
		rule:    "recommendationValidity must be a duration from 1m to 720h, such as 24h",
		accepts: []string{`recommendationValidity: 1m`, `recommendationValidity: 720h`},
		refuses: []string{`recommendationValidity: 59s`, `recommendationValidity: 721h`, `recommendationValidity: 1d`},
	}}
}

// changeTimeRows are of the times in which changes are made, or not: of windows and of
// freezes alike.
func changeTimeRows(name string) []row {
	times := "spec.budgets." + name
	window := func(fields string) string { return `budgets: {` + name + `: [{` + fields + `}]}` }
	return []row{{
		field:   times + "[].schedule",
		rule:    "schedule must have five cron fields with one space between, such as 0 22 * * 1-5",
		accepts: []string{window(`schedule: 0 22 * * 1-5, duration: 8h`), window(`schedule: "*/30 0,12 1 JAN MON-FRI", duration: 8h`)},
		refuses: []string{
			window(`schedule: 22 * * 1-5, duration: 8h`), window(`schedule: 0 0 22 * * 1-5, duration: 8h`),
			window(`schedule: "@daily", duration: 8h`), window(`schedule: "", duration: 8h`),
		},
	}, {
		field:   times + "[].duration",
		rule:    "duration must be a duration from 1m to 168h, such as 8h",
		accepts: []string{window(`schedule: 0 22 * * *, duration: 1m`), window(`schedule: 0 22 * * *, duration: 168h`)},
		refuses: []string{window(`schedule: 0 22 * * *, duration: 59s`), window(`schedule: 0 22 * * *, duration: 168h1s`), window(`schedule: 0 22 * * *, duration: night`)},
	}}
}

func policyTariffRows() []row {
	tariff := func(fields string) string { return `tariff: {` + fields + `}` }
	return []row{{
		field:   "spec.tariff.currency",
		rule:    "currency must be three capital letters, such as EUR",
		accepts: []string{tariff(`currency: CHF`)},
		refuses: []string{tariff(`currency: eur`), tariff(`currency: E1R`), tariff(`currency: ""`)},
	}, {
		field:   "spec.tariff.pricePerKWh",
		rule:    "pricePerKWh must be from 0 to 1M, such as 0.28",
		accepts: []string{tariff(`pricePerKWh: 0`), tariff(`pricePerKWh: 280m`), tariff(`pricePerKWh: 1M`)},
		refuses: []string{tariff(`pricePerKWh: "-0.01"`), tariff(`pricePerKWh: 1000001`)},
	}, {
		field:   "spec.tariff.gramsCO2PerKWh",
		rule:    "gramsCO2PerKWh must be from 0 to 10k, such as 380",
		accepts: []string{tariff(`gramsCO2PerKWh: 0`), tariff(`gramsCO2PerKWh: 10k`)},
		refuses: []string{tariff(`gramsCO2PerKWh: -1`), tariff(`gramsCO2PerKWh: 10001`)},
	}}
}
