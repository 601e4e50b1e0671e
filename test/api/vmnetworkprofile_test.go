package api

import (
	"fmt"
	"slices"
	"strings"
)

func vmNetworkProfiles() table {
	return table{
		namespaced: true,
		minimal:    `selector: {matchLabels: {app: web}}`,
		rows:       slices.Concat(profileSelectorRows(), profileTrafficRows(), profileBufferingRows(), profileGroupRows(), profileLevelRows()),
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
	}, {
		field:   "spec.selector",
		rule:    "selector must have at most 32 matchLabels and 16 matchExpressions of 64 values",
		accepts: []string{selectorOf(31, 16, 64)}, // beside that of the minimal profile
		refuses: []string{selectorOf(33, 1, 1), selectorOf(1, 17, 1), selectorOf(1, 1, 65)},
	}}
}

// selectorOf has so many labels, and expressions with so many values.
func selectorOf(matchLabels, expressions, values int) string {
	pairs := make([]string, matchLabels)
	for i := range pairs {
		pairs[i] = fmt.Sprintf("l%d: a", i)
	}
	expression := "{key: a, operator: In, values: [v" + strings.Repeat(", v", values-1) + "]}"
	return fmt.Sprintf("selector: {matchLabels: {%s}, matchExpressions: [%s]}",
		strings.Join(pairs, ", "), expression+strings.Repeat(", "+expression, expressions-1))
}

func profileTrafficRows() []row {
	return []row{{
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
		field:   "spec.bandwidth.ceiling",
		rule:    "ceiling must be above 0 and at most 1P bit/s, such as 1G (a small m would mean thousandths): leave it out for no ceiling",
		accepts: []string{`bandwidth: {ceiling: 1}`, `bandwidth: {ceiling: 1G}`},
		refuses: []string{`bandwidth: {ceiling: 0}`, `bandwidth: {ceiling: 1500m}`, `bandwidth: {ceiling: 20E}`, `bandwidth: {ceiling: all}`},
	}, {
		field:   "spec.latencyBudget",
		rule:    "latencyBudget must be a duration from 0s (never buffer) to 100ms, such as 500us",
		accepts: []string{`latencyBudget: 0s`, `latencyBudget: 500us`, `latencyBudget: 1.5ms`, `latencyBudget: 100ms`},
		refuses: []string{`latencyBudget: 101ms`, `latencyBudget: -1ms`, `latencyBudget: "5"`, `latencyBudget: fast`},
	}, {
		field:   "spec.maxDelay",
		rule:    "maxDelay must be a duration from 1s to 1h, such as 30s",
		accepts: []string{`{trafficClass: Deferrable, maxDelay: 1s}`, `{trafficClass: Deferrable, maxDelay: 1h}`},
		refuses: []string{`{trafficClass: Deferrable, maxDelay: 999ms}`, `{trafficClass: Deferrable, maxDelay: 1h1s}`, `{trafficClass: Deferrable, maxDelay: later}`},
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

func profileBufferingRows() []row {
	buffering := func(fields string) string { return `buffering: {` + fields + `}` }
	return []row{{
		field:   "spec.buffering.onPacketsPerSecond",
		rule:    "onPacketsPerSecond must be from 1000 to 10000000 packets per second",
		accepts: []string{buffering(`onPacketsPerSecond: 1000`), buffering(`onPacketsPerSecond: 10000000`)},
		refuses: []string{buffering(`onPacketsPerSecond: 999`), buffering(`onPacketsPerSecond: 10000001`), buffering(`onPacketsPerSecond: 0`)},
	}}
}

func profileGroupRows() []row {
	return []row{{
		field:   "spec.group.name",
		rule:    "name must be the name of a Service or route: lower-case letters, digits, - and .",
		accepts: []string{`group: {name: web}`, `group: {kind: HTTPRoute, name: web.example.org-1, port: 80, route: {parentRefs: [{name: edge}]}}`},
		refuses: []string{`group: {name: ""}`, `group: {name: Web}`, `group: {name: shop/web}`, `group: {name: web-}`},
	}, {
		field:   "spec.group.minActive",
		rule:    "minActive must be 1 or more: a group without an active VM serves nobody",
		accepts: []string{`group: {name: web, minActive: 1}`},
		refuses: []string{`group: {name: web, minActive: 0}`, `group: {name: web, minActive: -1}`},
	}, {
		field:   "spec.group.port",
		rule:    "port must be from 1 to 65535",
		accepts: []string{`group: {kind: GRPCRoute, name: web, port: 1, route: {parentRefs: [{name: edge}]}}`, `group: {kind: GRPCRoute, name: web, port: 65535, route: {parentRefs: [{name: edge}]}}`},
		refuses: []string{`group: {kind: GRPCRoute, name: web, port: 0, route: {parentRefs: [{name: edge}]}}`, `group: {kind: GRPCRoute, name: web, port: 65536, route: {parentRefs: [{name: edge}]}}`},
	}, {
		field:   "spec.group",
		rule:    "route is only for kinds of routes: remove route or set kind to HTTPRoute or GRPCRoute",
		accepts: []string{`group: {name: web}`, `group: {kind: GRPCRoute, name: web, port: 443, route: {parentRefs: [{name: edge}]}}`},
		refuses: []string{`group: {name: web, route: {parentRefs: [{name: edge}]}}`, `group: {kind: Service, name: web, route: {parentRefs: [{name: edge}]}}`},
	}, {
		field:   "spec.group",
		rule:    "route is required for kinds of routes: set route.parentRefs to the Gateways of the route",
		accepts: []string{`group: {name: web}`, `group: {kind: HTTPRoute, name: web, port: 80, route: {parentRefs: [{name: edge}]}}`},
		refuses: []string{`group: {kind: HTTPRoute, name: web, port: 80}`},
	}, {
		field:   "spec.group",
		rule:    "port is required with a route: set the port that the VMs serve on",
		accepts: []string{`group: {name: web}`, `group: {kind: HTTPRoute, name: web, port: 80, route: {parentRefs: [{name: edge}]}}`},
		refuses: []string{`group: {kind: HTTPRoute, name: web, route: {parentRefs: [{name: edge}]}}`, `group: {kind: GRPCRoute, name: web, route: {parentRefs: [{name: edge}]}}`},
	}, {
		field:   "spec.group",
		rule:    "port is only for kinds of routes: the Service names its own ports",
		accepts: []string{`group: {name: web}`, `group: {kind: GRPCRoute, name: web, port: 80, route: {parentRefs: [{name: edge}]}}`},
		refuses: []string{`group: {name: web, port: 80}`, `group: {kind: Service, name: web, port: 80}`},
	}}
}

func profileLevelRows() []row {
	return []row{{
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
