package linux

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	staticState = `{"policyName":"static","defaultCpuSet":"0-1,4-7","entries":{"pod":{"a":"2","b":"3"}},"checksum":1}`
	staticConf  = "kind: KubeletConfiguration\ncpuManagerPolicy: static\nreservedSystemCPUs: 0-1\n"
)

func TestKubelet(t *testing.T) {
	const state, config = "node/var/lib/kubelet/cpu_manager_state", "node/var/lib/kubelet/config.yaml"
	type cpus struct{ Exclusive, Reserved string }
	for name, test := range map[string]struct {
		make func(*tree)
		want cpus
	}{
		"no kubelet":              {func(*tree) {}, cpus{}},
		"both files":              {func(tr *tree) { tr.write(state, staticState); tr.write(config, staticConf) }, cpus{"2-3", "0-1"}},
		"the configuration alone": {func(tr *tree) { tr.write(config, staticConf) }, cpus{"", "0-1"}},
		"the state alone":         {func(tr *tree) { tr.write(state, staticState) }, cpus{"2-3", ""}},
		"a state that is cut":     {func(tr *tree) { tr.write(state, staticState[:60]); tr.write(config, staticConf) }, cpus{"", "0-1"}},
		"a state too long to be one": {func(tr *tree) {
			tr.write(state, staticState+strings.Repeat(" ", maxKubeletFile))
		}, cpus{}},
		"a state of another form": {func(tr *tree) { tr.write(state, `{"policyName":"static","entries":{"id":"2"}}`) }, cpus{}},
		"links of the node's own": {func(tr *tree) {
			tr.write("node/data/kubelet/cpu_manager_state", staticState)
			tr.link("/data/kubelet", "node/var/lib/kubelet")
		}, cpus{"2-3", ""}},
		"a link out of the node": {func(tr *tree) {
			tr.write("outside", staticState)
			tr.link(filepath.Join(tr.dir, "outside"), state)
		}, cpus{}},
		"credentials where others have the configuration": {func(tr *tree) {
			tr.write("node/etc/kubernetes/kubelet.conf", "kind: Config\nreservedSystemCPUs: 5\n")
			tr.write("node/etc/kubernetes/kubelet/kubelet-config.json", `{"kind":"KubeletConfiguration","reservedSystemCPUs":"7"}`)
		}, cpus{"", "7"}},
		"reserved CPUs that are no list": {func(tr *tree) {
			tr.write(config, "kind: KubeletConfiguration\nreservedSystemCPUs: all\n")
			tr.write(state, staticState)
		}, cpus{"2-3", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t)
			tr.mkdir("node")
			tr.link("../../node", "proc/1/root")
			test.make(tr)
			exclusive, reserved := tr.host().kubeletCPUs()
			if diff := cmp.Diff(test.want, cpus{exclusive.String(), reserved.String()}); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	t.Run("a node whose first process is not to be seen", func(t *testing.T) {
		if exclusive, reserved := newTree(t).host().kubeletCPUs(); !exclusive.IsEmpty() || !reserved.IsEmpty() {
			t.Errorf("exclusive %s, reserved %s", exclusive, reserved)
		}
	})
}
