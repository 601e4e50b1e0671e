package api

import (
	"slices"
	"strings"
)

func vmNetworkProfiles() table {
	return table{
		namespaced: true,
		minimal:    `selector: {matchLabels: {app: web}}`,
		full: `
selector: {matchLabels: {app: web}, matchExpressions: [{key: tier, operator: Exists}]}
buffering: {smallPacketServices: [{protocol: UDP, port: 53}]}
group: {kind: HTTPRoute, name: web, port: 80, route: {parentRefs: [{name: edge}]}}`,
		rows: slices.Concat(profileSelectorRows(), profileTrafficRows(), profileBufferingRows(), profileGroupRows(), profileRouteRows(), profileLevelRows()),
	}
}

func profileSelectorRows() []row {
	return []row{{
		field:   "spec.selector",
		rule:    "selector must not be empty: name at least one label of the VMs in matchLabels or matchExpressions",
		accepts: []string{`{}`, `selector: {matchLabels: null, matchExpressions: [{key: app, operator: Exists}]}`},
		refuses: []string{`selector: {matchLabels: null}`, `selector: {matchLabels: {app: null}}`, `selector: {matchLabels: null, matchExpressions: []}`},
	}, {
		field: "spec.selector",
		rule:  "selector.matchExpressions must each be In or NotIn with values, or Exists or DoesNotExist without",
		accepts: []string{
			`selector: {matchExpressions: [{key: app, operator: In, values: [a]}, {key: b, operator: DoesNotExist}]}`,
			`selector: {matchExpressions: [{key: app, operator: NotIn, values: [a, b]}, {key: b, operator: Exists, values: []}]}`,
		},
		refuses: []string{
			`selector: {matchExpressions: [{key: app, operator: Is, values: [a]}]}`,
			`selector: {matchExpressions: [{key: app, operator: In}]}`,
			`selector: {matchExpressions: [{key: app, operator: NotIn, values: []}]}`,
			`selector: {matchExpressions: [{key: app, operator: Exists, values: [a]}]}`,
		},
	}}
}

func profileTrafficRows() []row {
	return []row{{
		field:   "spec.trafficClass",
		rule:    "enum",
		accepts: []string{`trafficClass: Interactive`, `trafficClass: Throughput`, `{trafficClass: Deferrable, maxDelay: 30s}`},
		refuses: []string{`trafficClass: interactive`, `trafficClass: ""`},
	}, {
		field:   "spec.bandwidth",
		rule:    "floor must not be above ceiling: lower bandwidth.floor or raise bandwidth.ceiling",
		accepts: []string{`bandwidth: {floor: 50M, ceiling: 1G}`, `bandwidth: {floor: 1000M, ceiling: 1G}`, `bandwidth: {floor: 1}`},
		refuses: []string{`bandwidth: {floor: 1001M, ceiling: 1G}`, `bandwidth: {floor: 2000, ceiling: 1000}`},
	}, {
		field:   "spec.bandwidth.floor",
		rule:    "floor must be from 0 to 1P bit/s, such as 50M (a small m would mean thousandths)",
		accepts: []string{`bandwidth: {floor: 0}`, `bandwidth: {floor: 50M}`, `bandwidth: {floor: 0.5G}`, `bandwidth: {floor: 1.5Gi}`, `bandwidth: {floor: 1P}`},
		refuses: []string{`bandwidth: {floor: -1}`, `bandwidth: {floor: 2P}`, `bandwidth: {floor: 50m}`, `bandwidth: {floor: much}`},
	}, {
		field:   "spec.bandwidth.floor",
		rule:    "pattern",
		accepts: []string{`bandwidth: {floor: 1.5Gi}`},
		refuses: []string{`bandwidth: {floor: much}`, `bandwidth: {floor: 50 Mbit}`},
	}, {
		field:   "spec.bandwidth.ceiling",
		rule:    "ceiling must be above 0 and at most 1P bit/s, such as 1G (a small m would mean thousandths): leave it out for no ceiling",
		accepts: []string{`bandwidth: {ceiling: 1}`, `bandwidth: {ceiling: 1G}`},
		refuses: []string{`bandwidth: {ceiling: 0}`, `bandwidth: {ceiling: 1500m}`, `bandwidth: {ceiling: 20E}`, `bandwidth: {ceiling: all}`},
	}, {
		field:   "spec.bandwidth.ceiling",
		rule:    "pattern",
		accepts: []string{`bandwidth: {ceiling: 25G}`},
		refuses: []string{`bandwidth: {ceiling: all}`},
	}, {
		field:   "spec.latencyBudget",
		rule:    "latencyBudget must be a duration from 0s (never buffer) to 100ms, such as 500us",
		accepts: []string{`latencyBudget: 0s`, `latencyBudget: 500us`, `latencyBudget: 1.5ms`, `latencyBudget: 100ms`},
		refuses: []string{`latencyBudget: 101ms`, `latencyBudget: -1ms`, `latencyBudget: "5"`, `latencyBudget: fast`},
	}, {
		field:   "spec.latencyBudget",
		rule:    "maxLength",
		accepts: []string{`latencyBudget: ` + strings.Repeat("0", 31) + `s`},
		refuses: []string{`latencyBudget: ` + strings.Repeat("0", 32) + `s`},
	}, {
		field:   "spec.maxDelay",
		rule:    "maxDelay must be a duration from 1s to 1h, such as 30s",
		accepts: []string{`{trafficClass: Deferrable, maxDelay: 1s}`, `{trafficClass: Deferrable, maxDelay: 1h}`},
		refuses: []string{`{trafficClass: Deferrable, maxDelay: 999ms}`, `{trafficClass: Deferrable, maxDelay: 1h1s}`, `{trafficClass: Deferrable, maxDelay: later}`},
	}, {
		field:   "spec.maxDelay",
		rule:    "maxLength",
		accepts: []string{`{trafficClass: Deferrable, maxDelay: ` + strings.Repeat("0", 30) + `9s}`},
		refuses: []string{`{trafficClass: Deferrable, maxDelay: ` + strings.Repeat("0", 31) + `9s}`},
	}, {
		field:   "spec",
		rule:    "maxDelay is only for trafficClass Deferrable: remove maxDelay or set trafficClass to Deferrable",
		accepts: []string{`{trafficClass: Deferrable, maxDelay: 30s}`},
		refuses: []string{`maxDelay: 30s`, `{trafficClass: Throughput, maxDelay: 30s}`},
	}, {
		field:   "spec",
		rule:    "trafficClass Deferrable needs maxDelay: set the longest time that traffic may be held, for example 30s",
		accepts: []string{`{trafficClass: Deferrable, maxDelay: 30s}`, `trafficClass: Throughput`},
		refuses: []string{`trafficClass: Deferrable`},
	}}
}

func profileGroupRows() []row {
	return []row{{
		field:   "spec.group.kind",
		rule:    "enum",
		accepts: []string{`group: {name: web}`, `group: {kind: TCPRoute, name: web, port: 80}`},
		refuses: []string{`group: {kind: Ingress, name: web, port: 80}`},
	}, {
		field:   "spec.group.name",
		rule:    "name must be the name of a Service or route: lower-case letters, digits, - and .",
		accepts: []string{`group: {name: web}`, `group: {kind: HTTPRoute, name: web.example.org-1, port: 80}`},
		refuses: []string{`group: {name: ""}`, `group: {name: Web}`, `group: {name: shop/web}`, `group: {name: web-}`},
	}, {
		field:   "spec.group.name",
		rule:    "maxLength",
		accepts: []string{`group: {name: ` + strings.Repeat("a", 253) + `}`},
		refuses: []string{`group: {name: ` + strings.Repeat("a", 254) + `}`},
	}, {
		field:   "spec.group.minActive",
		rule:    "minActive must be 1 or more: a group without an active VM serves nobody",
		accepts: []string{`group: {name: web, minActive: 1}`},
		refuses: []string{`group: {name: web, minActive: 0}`, `group: {name: web, minActive: -1}`},
	}, {
		field:   "spec.group.headroom",
		rule:    "enum",
		accepts: []string{`group: {name: web, headroom: LargestMember}`, `group: {name: web, headroom: None}`},
		refuses: []string{`group: {name: web, headroom: TwoMembers}`},
	}, {
		field:   "spec.group.port",
		rule:    "port must be from 1 to 65535",
		accepts: []string{`group: {kind: TCPRoute, name: web, port: 1}`, `group: {kind: TCPRoute, name: web, port: 65535}`},
		refuses: []string{`group: {kind: TCPRoute, name: web, port: 0}`, `group: {kind: TCPRoute, name: web, port: 65536}`},
	}, {
		field:   "spec.group",
		rule:    "route is only for kinds of routes: remove route or set kind to HTTPRoute, GRPCRoute, TLSRoute or TCPRoute",
		accepts: []string{`group: {name: web}`, `group: {kind: TLSRoute, name: web, port: 443, route: {parentRefs: [{name: edge}]}}`},
		refuses: []string{`group: {name: web, route: {parentRefs: [{name: edge}]}}`, `group: {kind: Service, name: web, route: {parentRefs: [{name: edge}]}}`},
	}, {
		field:   "spec.group",
		rule:    "port is required with a route: set the port that the VMs serve on",
		accepts: []string{`group: {name: web}`, `group: {kind: HTTPRoute, name: web, port: 80}`},
		refuses: []string{`group: {kind: HTTPRoute, name: web}`, `group: {kind: GRPCRoute, name: web, route: {parentRefs: [{name: edge}]}}`},
	}, {
		field:   "spec.group",
		rule:    "port is only for kinds of routes: the Service names its own ports",
		accepts: []string{`group: {name: web}`, `group: {kind: TCPRoute, name: web, port: 80}`},
		refuses: []string{`group: {name: web, port: 80}`, `group: {kind: Service, name: web, port: 80}`},
	}}
}

func profileRouteRows() []row {
	of := func(kind, route string) string {
		return `group: {kind: ` + kind + `, name: web, port: 80, route: {` + route + `}}`
	}
	with := func(route string) string { return of("HTTPRoute", "parentRefs: [{name: edge}], "+route) }
	parent := func(fields string) string { return of("HTTPRoute", "parentRefs: [{"+fields+"}]") }
	long := strings.Repeat("a", 253)
	return []row{{
		field: "spec.group",
		rule:  "route.matches and route.filters are only for HTTPRoute and GRPCRoute: remove them",
		accepts: []string{
			with(`matches: [{path: {type: PathPrefix, value: /}}], filters: [{type: RequestHeaderModifier, requestHeaderModifier: {remove: [a]}}]`),
			of("GRPCRoute", `parentRefs: [{name: edge}], matches: [{method: {service: a.B}}]`),
			of("TCPRoute", `parentRefs: [{name: edge}]`),
		},
		refuses: []string{
			of("TLSRoute", `parentRefs: [{name: edge}], matches: [{path: {type: PathPrefix, value: /}}]`),
			of("TCPRoute", `parentRefs: [{name: edge}], filters: [{type: RequestMirror}]`),
		},
	}, {
		field:   "spec.group",
		rule:    "route.hostnames is not for TCPRoute: remove it",
		accepts: []string{of("TLSRoute", `parentRefs: [{name: edge}], hostnames: [web.example.org]`)},
		refuses: []string{of("TCPRoute", `parentRefs: [{name: edge}], hostnames: [web.example.org]`)},
	}, {
		field:   "spec.group.route.parentRefs",
		rule:    "minItems",
		accepts: []string{parent(`name: edge`)},
		refuses: []string{of("HTTPRoute", `parentRefs: []`)},
	}, {
		field:   "spec.group.route.parentRefs",
		rule:    "maxItems",
		accepts: []string{of("HTTPRoute", `parentRefs: `+repeated(32, "{name: edge-%d}"))},
		refuses: []string{of("HTTPRoute", `parentRefs: `+repeated(33, "{name: edge-%d}"))},
	}, {
		field: "spec.group.route.parentRefs[].name", rule: "minLength",
		accepts: []string{parent(`name: e`)}, refuses: []string{parent(`name: ""`)},
	}, {
		field: "spec.group.route.parentRefs[].name", rule: "maxLength",
		accepts: []string{parent(`name: ` + long)}, refuses: []string{parent(`name: a` + long)},
	}, {
		field: "spec.group.route.parentRefs[].namespace", rule: "minLength",
		accepts: []string{parent(`name: edge, namespace: a`)}, refuses: []string{parent(`name: edge, namespace: ""`)},
	}, {
		field: "spec.group.route.parentRefs[].namespace", rule: "maxLength",
		accepts: []string{parent(`name: edge, namespace: ` + long[:63])}, refuses: []string{parent(`name: edge, namespace: ` + long[:64])},
	}, {
		field: "spec.group.route.parentRefs[].sectionName", rule: "minLength",
		accepts: []string{parent(`name: edge, sectionName: h`)}, refuses: []string{parent(`name: edge, sectionName: ""`)},
	}, {
		field: "spec.group.route.parentRefs[].sectionName", rule: "maxLength",
		accepts: []string{parent(`name: edge, sectionName: ` + long)}, refuses: []string{parent(`name: edge, sectionName: a` + long)},
	}, {
		field: "spec.group.route.parentRefs[].port", rule: "minimum",
		accepts: []string{parent(`name: edge, port: 1`)}, refuses: []string{parent(`name: edge, port: 0`)},
	}, {
		field: "spec.group.route.parentRefs[].port", rule: "maximum",
		accepts: []string{parent(`name: edge, port: 65535`)}, refuses: []string{parent(`name: edge, port: 65536`)},
	}, {
		field: "spec.group.route.hostnames", rule: "maxItems",
		accepts: []string{with(`hostnames: ` + repeated(16, "h%d"))}, refuses: []string{with(`hostnames: ` + repeated(17, "h%d"))},
	}, {
		field: "spec.group.route.hostnames[]", rule: "minLength",
		accepts: []string{with(`hostnames: [h]`)}, refuses: []string{with(`hostnames: [""]`)},
	}, {
		field: "spec.group.route.hostnames[]", rule: "maxLength",
		accepts: []string{with(`hostnames: [` + long + `]`)}, refuses: []string{with(`hostnames: [a` + long + `]`)},
	}, {
		field: "spec.group.route.matches", rule: "maxItems",
		accepts: []string{with(`matches: ` + repeated(64, "{n: %d}"))}, refuses: []string{with(`matches: ` + repeated(65, "{n: %d}"))},
	}, {
		field: "spec.group.route.filters", rule: "maxItems",
		accepts: []string{with(`filters: ` + repeated(16, "{n: %d}"))}, refuses: []string{with(`filters: ` + repeated(17, "{n: %d}"))},
	}}
}

func profileLevelRows() []row {
	return []row{{
		field:   "spec.affinity",
		rule:    "enum",
		accepts: []string{`affinity: Auto`, `affinity: Shared`, `affinity: Separated`, `affinity: Pinned`},
		refuses: []string{`affinity: pinned`},
	}, {
		field:   "spec.serviceLevels.maxStealPercent",
		rule:    "maxStealPercent must be from 1 to 100 percent of one CPU",
		accepts: []string{`serviceLevels: {maxStealPercent: 1}`, `serviceLevels: {maxStealPercent: 100}`},
		refuses: []string{`serviceLevels: {maxStealPercent: 0}`, `serviceLevels: {maxStealPercent: 101}`},
	}, {
		field:   "spec.serviceLevels.maxDropsPerMillion",
		rule:    "maxDropsPerMillion must be from 0 to 1000000 packets per million",
		accepts: []string{`serviceLevels: {maxDropsPerMillion: 0}`, `serviceLevels: {maxDropsPerMillion: 1000000}`},
		refuses: []string{`serviceLevels: {maxDropsPerMillion: -1}`, `serviceLevels: {maxDropsPerMillion: 1000001}`},
	}, {
		field:   "spec.serviceLevels.minThroughputPercent",
		rule:    "minThroughputPercent must be from 1 to 100 percent of the VM's own baseline",
		accepts: []string{`serviceLevels: {minThroughputPercent: 1}`, `serviceLevels: {minThroughputPercent: 100}`},
		refuses: []string{`serviceLevels: {minThroughputPercent: 0}`, `serviceLevels: {minThroughputPercent: 101}`},
	}}
}
