package api

import "strings"

// policyProofRows are the rules of what has to be proven, and by what.
func policyProofRows() []row {
	verification := func(fields string) string { return `verification: {` + fields + `}` }
	evidence := func(fields string) string { return verification(`evidence: [{` + fields + `}]`) }
	long := strings.Repeat("e", 253)
	return []row{{
		field:   "spec.verification.trials",
		rule:    "enum",
		accepts: []string{verification(`trials: Required`), verification(`trials: Disabled`)},
		refuses: []string{verification(`trials: "Off"`), verification(`trials: ""`)},
	}, {
		field:   "spec.verification.evidence",
		rule:    "maxItems",
		accepts: []string{verification(`evidence: ` + repeated(16, "{name: e%d}"))},
		refuses: []string{verification(`evidence: ` + repeated(17, "{name: e%d}"))},
	}, {
		field:   "spec.verification.evidence",
		rule:    "unique",
		accepts: []string{verification(`evidence: [{name: a}, {name: b}]`)},
		refuses: []string{verification(`evidence: [{name: a}, {name: a, key: other}]`)},
	}, {
		field:   "spec.verification.evidence[].name",
		rule:    "minLength",
		accepts: []string{evidence(`name: e`)},
		refuses: []string{evidence(`name: ""`)},
	}, {
		field:   "spec.verification.evidence[].name",
		rule:    "maxLength",
		accepts: []string{evidence(`name: ` + long)},
		refuses: []string{evidence(`name: e` + long)},
	}, {
		field:   "spec.verification.evidence[].key",
		rule:    "minLength",
		accepts: []string{evidence(`name: e, key: k`)},
		refuses: []string{evidence(`name: e, key: ""`)},
	}, {
		field:   "spec.verification.evidence[].key",
		rule:    "maxLength",
		accepts: []string{evidence(`name: e, key: ` + long)},
		refuses: []string{evidence(`name: e, key: e` + long)},
	}}
}

func policyTariffRows() []row {
	tariff := func(fields string) string { return `tariff: {` + fields + `}` }
	query := strings.Repeat("q", 4096)
	return []row{{
		field:   "spec.tariff",
		rule:    "set pricePerKWh or priceQuery, not both",
		accepts: []string{tariff(`pricePerKWh: "0.28"`), tariff(`priceQuery: price`), tariff(``)},
		refuses: []string{tariff(`pricePerKWh: "0.28", priceQuery: price`)},
	}, {
		field:   "spec.tariff",
		rule:    "set gramsCO2PerKWh or intensityQuery, not both",
		accepts: []string{tariff(`gramsCO2PerKWh: 380`), tariff(`intensityQuery: intensity`)},
		refuses: []string{tariff(`gramsCO2PerKWh: 380, intensityQuery: intensity`)},
	}, {
		field:   "spec.tariff.currency",
		rule:    "currency must be three capital letters, such as EUR",
		accepts: []string{tariff(`currency: CHF`)},
		refuses: []string{tariff(`currency: eur`), tariff(`currency: E1R`), tariff(`currency: ""`)},
	}, {
		field:   "spec.tariff.currency",
		rule:    "maxLength",
		accepts: []string{tariff(`currency: CHF`)},
		refuses: []string{tariff(`currency: EURO`)},
	}, {
		field:   "spec.tariff.pricePerKWh",
		rule:    "pricePerKWh must be from 0 to 1M, such as 0.28",
		accepts: []string{tariff(`pricePerKWh: 0`), tariff(`pricePerKWh: 280m`), tariff(`pricePerKWh: 1M`)},
		refuses: []string{tariff(`pricePerKWh: "-0.01"`), tariff(`pricePerKWh: 1000001`)},
	}, {
		field:   "spec.tariff.pricePerKWh",
		rule:    "pattern",
		accepts: []string{tariff(`pricePerKWh: "0.28"`), tariff(`pricePerKWh: 2`)},
		refuses: []string{tariff(`pricePerKWh: "0,28"`), tariff(`pricePerKWh: 28 cent`)},
	}, {
		field:   "spec.tariff.gramsCO2PerKWh",
		rule:    "gramsCO2PerKWh must be from 0 to 10k, such as 380",
		accepts: []string{tariff(`gramsCO2PerKWh: 0`), tariff(`gramsCO2PerKWh: 10k`)},
		refuses: []string{tariff(`gramsCO2PerKWh: -1`), tariff(`gramsCO2PerKWh: 10001`)},
	}, {
		field:   "spec.tariff.gramsCO2PerKWh",
		rule:    "pattern",
		accepts: []string{tariff(`gramsCO2PerKWh: "380.5"`)},
		refuses: []string{tariff(`gramsCO2PerKWh: 380g`)},
	}, {
		field:   "spec.tariff.priceQuery",
		rule:    "minLength",
		accepts: []string{tariff(`priceQuery: p`)},
		refuses: []string{tariff(`priceQuery: ""`)},
	}, {
		field:   "spec.tariff.priceQuery",
		rule:    "maxLength",
		accepts: []string{tariff(`priceQuery: ` + query)},
		refuses: []string{tariff(`priceQuery: q` + query)},
	}, {
		field:   "spec.tariff.intensityQuery",
		rule:    "minLength",
		accepts: []string{tariff(`intensityQuery: i`)},
		refuses: []string{tariff(`intensityQuery: ""`)},
	}, {
		field:   "spec.tariff.intensityQuery",
		rule:    "maxLength",
		accepts: []string{tariff(`intensityQuery: ` + query)},
		refuses: []string{tariff(`intensityQuery: q` + query)},
	}}
}
