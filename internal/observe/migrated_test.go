package observe

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
)

// TestWithoutEnded: a VM that came back to a node has one pod there, that with a process.
func TestWithoutEnded(t *testing.T) {
	vms := func(pods ...string) (all []model.VM) {
		for _, pod := range pods {
			all = append(all, model.VM{PodUID: pod, Namespace: "shop", Name: "web"})
		}
		return all
	}
	rates := &model.NodeRates{VMs: []model.VMRates{{PodUID: "now", Namespace: "shop", Name: "web"}}}
	for name, tc := range map[string]struct {
		vms   []model.VM
		rates *model.NodeRates
		want  []model.VM
	}{
		"came back":                 {vms("before", "now"), rates, vms("now")},
		"one pod, process not seen": {vms("starting"), rates, vms("starting")},
		"no rates":                  {vms("before", "now"), nil, vms("before", "now")},
		"no process is seen":        {vms("before", "now"), &model.NodeRates{}, vms("before", "now")},
	} {
		if diff := cmp.Diff(tc.want, withoutEnded(tc.vms, tc.rates)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
