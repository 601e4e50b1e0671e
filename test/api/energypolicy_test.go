package api

import (
	"slices"
	"strings"
)

func energyPolicies() table {
	return table{
		minimal: `mode: Observe`,
		full: `
mode: Enforce
levers: [Affinity]
nodeSelector: {matchExpressions: [{key: pool, operator: Exists}]}
namespaceSelector: {matchExpressions: [{key: team, operator: Exists}]}
energy:
  sources:
  - type: Prometheus
    prometheus: {url: "https://prometheus.monitoring.svc:9090", secret: {namespace: monitoring, name: reader}}
budgets:
  windows: [{schedule: 0 22 * * 1-5, duration: 8h}]
  freezes: [{schedule: 0 0 24 12 *, duration: 72h}]
guardrails: {alerts: [{name: slow, query: up, levers: [Affinity]}]}
verification: {evidence: [{name: evidence-of-berlin}]}`,
		rows: slices.Concat(policyModeRows(), policyEnergyRows(), policyBoundRows(), changeTimeRows("windows"), changeTimeRows("freezes"),
			policyProofRows(), policyTariffRows(), alertRows()),
	}
}

func policyModeRows() []row {
	return []row{{
		field:   "spec",
		rule:    "spec.mode is required: set Observe to change nothing, Recommend to act on approval, or Enforce to act",
		accepts: []string{`{}`},
		refuses: []string{`mode: null`, `{mode: null, levers: [Affinity]}`},
	}, {
		field:   "spec.mode",
		rule:    "enum",
		accepts: []string{`{mode: Enforce, levers: [Affinity]}`},
		refuses: []string{`mode: enforce`, `mode: ""`},
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
	}, {
		field:   "spec.approvals",
		rule:    "maxItems",
		accepts: []string{`{mode: Recommend, levers: [Affinity], approvals: ` + repeated(1024, "r%d") + `}`},
		refuses: []string{`{mode: Recommend, levers: [Affinity], approvals: ` + repeated(1025, "r%d") + `}`},
	}, {
		field:   "spec.approvals",
		rule:    "unique",
		accepts: []string{`{mode: Recommend, levers: [Affinity], approvals: [r1, r2]}`},
		refuses: []string{`{mode: Recommend, levers: [Affinity], approvals: [r1, r1]}`},
	}, {
		field:   "spec.approvals[]",
		rule:    "minLength",
		accepts: []string{`{mode: Recommend, levers: [Affinity], approvals: [r]}`},
		refuses: []string{`{mode: Recommend, levers: [Affinity], approvals: [""]}`},
	}, {
		field:   "spec.approvals[]",
		rule:    "maxLength",
		accepts: []string{`{mode: Recommend, levers: [Affinity], approvals: [` + strings.Repeat("r", 64) + `]}`},
		refuses: []string{`{mode: Recommend, levers: [Affinity], approvals: [` + strings.Repeat("r", 65) + `]}`},
	}, {
		field:   "spec.levers",
		rule:    "maxItems",
		accepts: []string{`levers: [TrafficShare, Affinity, Slice, Buffering, Shaping]`},
		refuses: []string{`levers: [TrafficShare, Affinity, Slice, Buffering, Shaping, Affinity]`},
	}, {
		field:   "spec.levers",
		rule:    "unique",
		accepts: []string{`levers: [Affinity, Slice]`},
		refuses: []string{`levers: [Affinity, Affinity]`},
	}, {
		field:   "spec.levers[]",
		rule:    "enum",
		accepts: []string{`levers: [Affinity]`},
		refuses: []string{`levers: [Pinning]`},
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

func policyEnergyRows() []row {
	prometheus := func(fields string) string {
		return `energy: {sources: [{type: Prometheus, prometheus: {` + fields + `}}]}`
	}
	const url = `url: "http://p:9090"`
	return []row{{
		field:   "spec.energy.sources",
		rule:    "unique",
		accepts: []string{`energy: {sources: [{type: Model}, {type: RAPL}]}`},
		refuses: []string{`energy: {sources: [{type: RAPL}, {type: RAPL}]}`},
	}, {
		field:   "spec.energy.sources",
		rule:    "minItems",
		accepts: []string{`energy: {sources: [{type: RAPL}]}`},
		refuses: []string{`energy: {sources: []}`},
	}, {
		field:   "spec.energy.sources",
		rule:    "maxItems",
		accepts: []string{`energy: {sources: [{type: RAPL}, {type: Model}, {type: Prometheus, prometheus: {url: "http://p"}}]}`},
		refuses: []string{`energy: {sources: [{type: RAPL}, {type: Model}, {type: RAPL}, {type: Model}]}`},
	}, {
		field:   "spec.energy.sources[].type",
		rule:    "enum",
		accepts: []string{`energy: {sources: [{type: RAPL}]}`},
		refuses: []string{`energy: {sources: [{type: Redfish}]}`},
	}, {
		field:   "spec.energy.sources[].freshness",
		rule:    "freshness must be a duration from 1s to 1h, such as 30s",
		accepts: []string{`energy: {sources: [{type: RAPL, freshness: 1s}]}`, `energy: {sources: [{type: RAPL, freshness: 1h}]}`},
		refuses: []string{`energy: {sources: [{type: RAPL, freshness: 999ms}]}`, `energy: {sources: [{type: RAPL, freshness: 61m}]}`, `energy: {sources: [{type: RAPL, freshness: new}]}`},
	}, {
		field:   "spec.energy.sources[].freshness",
		rule:    "maxLength",
		accepts: []string{`energy: {sources: [{type: RAPL, freshness: ` + strings.Repeat("0", 30) + `9s}]}`},
		refuses: []string{`energy: {sources: [{type: RAPL, freshness: ` + strings.Repeat("0", 31) + `9s}]}`},
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
		field:   "spec.energy.sources[].prometheus.url",
		rule:    "maxLength",
		accepts: []string{prometheus(`url: "http://p/` + strings.Repeat("a", 2039) + `"`)},
		refuses: []string{prometheus(`url: "http://p/` + strings.Repeat("a", 2040) + `"`)},
	}, {
		field:   "spec.energy.sources[].prometheus.series",
		rule:    "enum",
		accepts: []string{prometheus(url + `, series: KeplerLegacy`)},
		refuses: []string{prometheus(url + `, series: Scaphandre`)},
	}, {
		field:   "spec.energy.sources[].prometheus",
		rule:    "query goes with series Query: set both, or neither",
		accepts: []string{prometheus(url + `, series: Query, query: watts`), prometheus(url + `, series: Kepler`)},
		refuses: []string{prometheus(url + `, series: Query`), prometheus(url + `, query: watts`)},
	}, {
		field:   "spec.energy.sources[].prometheus.query",
		rule:    "minLength",
		accepts: []string{prometheus(url + `, series: Query, query: w`)},
		refuses: []string{prometheus(url + `, series: Query, query: ""`)},
	}, {
		field:   "spec.energy.sources[].prometheus.query",
		rule:    "maxLength",
		accepts: []string{prometheus(url + `, series: Query, query: ` + strings.Repeat("w", 4096))},
		refuses: []string{prometheus(url + `, series: Query, query: ` + strings.Repeat("w", 4097))},
	}, {
		field: "spec.energy.sources[].prometheus.timeout",
		rule:  "timeout must be a duration from 1s to 1m, such as 10s",
		accepts: []string{
			prometheus(url + `, timeout: 1s`), prometheus(url + `, timeout: 1m`), prometheus(url + `, timeout: 1m0s`), prometheus(url + `, timeout: 2500ms`),
		},
		refuses: []string{
			prometheus(url + `, timeout: 999ms`), prometheus(url + `, timeout: 61s`), prometheus(url + `, timeout: 0s`),
			prometheus(url + `, timeout: "-10s"`), prometheus(url + `, timeout: "10"`), prometheus(url + `, timeout: ""`), prometheus(url + `, timeout: long`),
		},
	}, {
		field:   "spec.energy.sources[].prometheus.timeout",
		rule:    "maxLength",
		accepts: []string{prometheus(url + `, timeout: ` + strings.Repeat("0", 30) + `9s`)},
		refuses: []string{prometheus(url + `, timeout: ` + strings.Repeat("0", 31) + `9s`)},
	}, {
		field:   "spec.energy.sources[].prometheus.secret.namespace",
		rule:    "minLength",
		accepts: []string{prometheus(url + `, secret: {namespace: a, name: b}`)},
		refuses: []string{prometheus(url + `, secret: {namespace: "", name: b}`)},
	}, {
		field:   "spec.energy.sources[].prometheus.secret.name",
		rule:    "minLength",
		accepts: []string{prometheus(url + `, secret: {namespace: a, name: b}`)},
		refuses: []string{prometheus(url + `, secret: {namespace: a, name: ""}`)},
	}}
}
