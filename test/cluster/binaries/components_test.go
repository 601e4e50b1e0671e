package binaries

import "testing"

func TestExecutable(t *testing.T) {
	for pkg, want := range map[string]string{
		"k8s.io/kubernetes/cmd/kubelet": "kubelet",
		"go.etcd.io/etcd/server/v3":     "server",
		"./manifests":                   "manifests",
		".":                             "argocd",
	} {
		if got := (recipe{pkg: pkg}).executable("hack/controlplane/argocd"); got != want {
			t.Errorf("go build names package %s %q, want %q", pkg, got, want)
		}
	}
}
