// Package policies embeds EnergyPolicies that are ready to apply: with kubectl
// from this folder, or by programs from Files.
package policies

import "embed"

// DescriptionAnnotation says in one sentence what a preset does.
const DescriptionAnnotation = "joulevirt.io/description"

// Files holds one preset a file, NAME.yaml.
//
//go:embed observe.yaml quick.yaml unmetered.yaml recommend-affinity.yaml recommend-traffic.yaml recommend-buffering.yaml
//go:embed conservative.yaml latency-critical.yaml flood-hardened.yaml backup-heavy.yaml
var Files embed.FS
