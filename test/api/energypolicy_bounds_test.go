package api

import "strings"

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
		field:   "spec.guardrails.reservedCPUs",
		rule:    "maxLength",
		accepts: []string{`guardrails: {reservedCPUs: "` + strings.Repeat("0,", 511) + `01"}`},
		refuses: []string{`guardrails: {reservedCPUs: "` + strings.Repeat("0,", 512) + `0"}`},
	}, {
		field:   "spec.guardrails.siblingSharing",
		rule:    "enum",
		accepts: []string{`guardrails: {siblingSharing: SameVM}`, `guardrails: {siblingSharing: SameNamespace}`, `guardrails: {siblingSharing: Any}`},
		refuses: []string{`guardrails: {siblingSharing: None}`, `guardrails: {siblingSharing: ""}`},
	}, {
		field:   "spec.budgets.maxNodesChanging",
		rule:    "maxNodesChanging must be 1 or more: to change nothing, set mode to Observe",
		accepts: []string{`budgets: {maxNodesChanging: 1}`},
		refuses: []string{`budgets: {maxNodesChanging: 0}`},
	}, {
		field:   "spec.budgets.maxChangesPerHour",
		rule:    "maxChangesPerHour must be 1 or more: to change nothing, set mode to Observe",
		accepts: []string{`budgets: {maxChangesPerHour: 1}`},
		refuses: []string{`budgets: {maxChangesPerHour: 0}`},
	}, {
		field:   "spec.verification.holdBackPercent",
		rule:    "holdBackPercent must be from 0 to 50",
		accepts: []string{`verification: {holdBackPercent: 0}`, `verification: {holdBackPercent: 50}`},
		refuses: []string{`verification: {holdBackPercent: -1}`, `verification: {holdBackPercent: 51}`},
	}, {
		field:   "spec.verification.confidencePercent",
		rule:    "confidencePercent must be from 80 to 99",
		accepts: []string{`verification: {confidencePercent: 80}`, `verification: {confidencePercent: 99}`},
		refuses: []string{`verification: {confidencePercent: 79}`, `verification: {confidencePercent: 100}`},
	}, {
		field:   "spec.recommendationValidity",
		rule:    "recommendationValidity must be a duration from 1m to 720h, such as 24h",
		accepts: []string{`recommendationValidity: 1m`, `recommendationValidity: 720h`},
		refuses: []string{`recommendationValidity: 59s`, `recommendationValidity: 721h`, `recommendationValidity: 1d`},
	}, {
		field:   "spec.recommendationValidity",
		rule:    "maxLength",
		accepts: []string{`recommendationValidity: ` + strings.Repeat("0", 30) + `1h`},
		refuses: []string{`recommendationValidity: ` + strings.Repeat("0", 31) + `1h`},
	}}
}
