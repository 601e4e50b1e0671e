package steps

import "time"

// rough are the durations of the longest steps on a machine that has nothing yet: two busy cores
// of 2026, a fast network, in the order of a set-up. Builds share what earlier ones compiled.
func rough() map[string]time.Duration {
	return map[string]time.Duration{
		"compile hack/demo":                 3 * time.Minute,
		"compile hack/setup":                2 * time.Minute,
		"build golangci-lint":               2 * time.Minute,
		"install Debian packages":           2 * time.Minute,
		"build argocd-sync":                 2 * time.Minute,
		"build containerd":                  1 * time.Minute,
		"build contour":                     2 * time.Minute,
		"build kustomize-controller":        4 * time.Minute,
		"build helm":                        3 * time.Minute,
		"build kubernetes":                  6 * time.Minute,
		"build kubevirt":                    5 * time.Minute,
		"build kubevirt-manifests":          90 * time.Second,
		"make a root file system of Debian": 50 * time.Second,
		"build manager":                     30 * time.Second,
		"get Envoy":                         10 * time.Second,
	}
}
