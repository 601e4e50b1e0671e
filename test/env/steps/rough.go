package steps

import "time"

// rough are the durations of the longest steps on a machine that has nothing yet: two busy cores
// of 2026, a fast network, in the order of a set-up. Builds share what earlier ones compiled.
func rough() map[string]time.Duration {
	return map[string]time.Duration{
		"install Debian packages":           2 * time.Minute,
		"build argocd-sync":                 2 * time.Minute,
		"build containerd":                  2 * time.Minute,
		"build contour":                     2 * time.Minute,
		"build kustomize-controller":        4 * time.Minute,
		"build helm":                        3 * time.Minute,
		"build etcd":                        20 * time.Second,
		"build kube-apiserver":              3 * time.Minute,
		"build kube-controller-manager":     90 * time.Second,
		"build kubectl":                     20 * time.Second,
		"build kubelet":                     20 * time.Second,
		"build kubevirt-manifests":          90 * time.Second,
		"build virt-api":                    30 * time.Second,
		"build virt-controller":             30 * time.Second,
		"build virt-handler":                2 * time.Minute,
		"build virt-launcher":               20 * time.Second,
		"make a root file system of Debian": 40 * time.Second,
		"build manager":                     90 * time.Second,
		"get Envoy":                         10 * time.Second,
	}
}
