package linux

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

func TestClasses(t *testing.T) {
	const capacity = "cpu_capacity"
	for name, test := range map[string]struct {
		fast, low string           // CPUs of the counters of either design, of 4
		figures   map[string][]int // by file
		want      string           // P, E or - for each CPU
	}{
		"nothing is reported":               {want: "----"},
		"a hybrid":                          {fast: "0-1", low: "2-3", want: "PPEE"},
		"a hybrid whose figures say little": {fast: "0-1", low: "2-3", figures: map[string][]int{capacity: {1024, 1010, 1024, 1010}}, want: "PPEE"},
		"a hybrid with one design off line": {fast: "0-3", low: "", want: "----"},
		"a CPU of neither design":           {fast: "0-1", low: "2", want: "----"},
		"a CPU of both designs":             {fast: "0-2", low: "2-3", want: "----"},
		"counters that cannot be read":      {fast: "x", low: "2-3", want: "----"},

		"big and little":           {figures: map[string][]int{capacity: {446, 446, 1024, 1024}}, want: "EEPP"},
		"little, middle and prime": {figures: map[string][]int{capacity: {250, 250, 870, 1024}}, want: "EEPP"},
		"all alike":                {figures: map[string][]int{capacity: {1024, 1024, 1024, 1024}}, want: "----"},
		"preferred cores":          {figures: map[string][]int{capacity: {1024, 1024, 1004, 984}}, want: "----"},
		"a capacity is missing":    {figures: map[string][]int{capacity: {446, 446, 1024, -1}}, want: "----"},
		"a capacity of nothing":    {figures: map[string][]int{capacity: {0, 446, 1024, 1024}}, want: "----"},
		"as wide as need be":       {figures: map[string][]int{capacity: {800, 800, 1000, 1000}}, want: "EEPP"},
		"not as wide":              {figures: map[string][]int{capacity: {801, 801, 1000, 1000}}, want: "----"},
		"many small steps":         {figures: map[string][]int{capacity: {600, 720, 860, 1024}}, want: "----"},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t)
			if test.fast != "" {
				tr.write("sys/devices/cpu_core/cpus", test.fast+"\n")
			}
			if test.low != "" {
				tr.write("sys/devices/cpu_atom/cpus", test.low+"\n")
			}
			for file, figures := range test.figures {
				for cpu, figure := range figures {
					if figure >= 0 {
						tr.write(fmt.Sprintf("sys/devices/system/cpu/cpu%d/%s", cpu, file), fmt.Sprintf("%d\n", figure))
					}
				}
			}
			var cores []model.Core
			for cpu := range 4 {
				cores = append(cores, model.Core{CPUs: units.NewCPUSet(cpu)})
			}
			tr.host().classify(cores)
			if got := letters(cores); got != test.want {
				t.Errorf("classes %s, want %s", got, test.want)
			}
		})
	}
}

func letters(cores []model.Core) string {
	var b strings.Builder
	for _, core := range cores {
		b.WriteString(map[v1alpha1.CoreClass]string{"": "-", v1alpha1.CorePerformance: "P", v1alpha1.CoreEfficiency: "E"}[core.Class])
	}
	return b.String()
}

func TestDeepestIdleState(t *testing.T) {
	tr := newTree(t)
	for n, state := range []struct{ name, disabled string }{{"POLL", "0"}, {"C2", ""}, {"C3", "0"}, {"C6", "1"}, {"", "0"}} {
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu7/cpuidle/state%d/", n)
		tr.write(dir+"name", state.name+"\n")
		if state.disabled != "" {
			tr.write(dir+"disable", state.disabled+"\n")
		}
	}
	h := tr.host()
	if got := h.deepestIdle(7); got != "C3" {
		t.Errorf("the deepest state is %q, want C3: C6 is disabled", got)
	}
	if got := h.deepestIdle(6); got != "" {
		t.Errorf("state %q of a CPU without cpuidle", got)
	}
}

func TestMovesPackets(t *testing.T) {
	for actions, want := range map[string]bool{
		"eth0-TxRx-0\n": true, "virtio0-input.0\n": true, "virtio0-config\n": false, "": false, "\n": false,
		"virtio0-config,virtio0-input.0\n": true, "mlx5_comp0@pci:0000:61:00.0\n": true, "eth0-config": true,
	} {
		if got := movesPackets(actions); got != want {
			t.Errorf("%q: %v", actions, got)
		}
	}
}

// What is missing or spoiled beside the cores leaves the topology whole.
func TestTopologyWithSpoiledFiles(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(*tree)
		fails bool
	}{
		"a package that nobody knows":      {spoil: func(tr *tree) { tr.write(cpuTree+"cpu1/topology/physical_package_id", "-1\n") }},
		"a node's CPUs that are no list":   {spoil: func(tr *tree) { tr.write("sys/devices/system/node/node1/cpulist", "x\n") }},
		"a folder that is no node":         {spoil: func(tr *tree) { tr.write("sys/devices/system/node/node1x/cpulist", "0-1\n") }},
		"a cache of others":                {spoil: func(tr *tree) { tr.cache(1, 3, "8-9") }},
		"a cache of nobody":                {spoil: func(tr *tree) { tr.cache(1, 3, "") }},
		"a cache of no level":              {spoil: func(tr *tree) { tr.write(cpuTree+"cpu1/cache/index3/level", "x\n") }},
		"an interrupt of no number":        {spoil: func(tr *tree) { tr.write("sys/devices/pci/0/msi_irqs/x", "") }},
		"a network card that is gone":      {spoil: func(tr *tree) { tr.link("../../../nowhere", "sys/class/net/eth1/device") }},
		"a state that is a folder":         {spoil: func(tr *tree) { tr.mkdir("node/var/lib/kubelet/cpu_manager_state") }},
		"isolated CPUs that are no list":   {spoil: func(tr *tree) { tr.write(cpuTree+"isolated", "x\n") }, fails: true},
		"online CPUs that are no list":     {spoil: func(tr *tree) { tr.write(cpuTree+"online", "x\n") }, fails: true},
		"a core whose CPUs are no list":    {spoil: func(tr *tree) { tr.write(cpuTree+"cpu1/topology/core_cpus_list", "x\n") }, fails: true},
		"a core that claims another's CPU": {spoil: func(tr *tree) { tr.write(cpuTree+"cpu1/topology/core_cpus_list", "0-1\n") }},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t)
			tr.write(cpuTree+"online", "0-1\n")
			tr.link("../../node", "proc/1/root")
			tr.mkdir("node")
			for cpu := range 2 {
				tr.write(fmt.Sprintf("%scpu%d/topology/core_cpus_list", cpuTree, cpu), fmt.Sprintf("%d\n", cpu))
				tr.cache(cpu, 2, fmt.Sprint(cpu))
			}
			test.spoil(tr)
			got, err := tr.host().Topology()
			if test.fails {
				if err == nil {
					t.Errorf("accepted as %+v", got)
				}
				return
			}
			want := model.Topology{Cores: coresOf(t, in(0, 0, 0, "", "0"), in(0, 0, 1, "", "1"))}
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%v, -want +got:\n%s", err, diff)
			}
		})
	}
}

const cpuTree = "sys/devices/system/cpu/"

func (tr *tree) cache(cpu, level int, shared string) {
	at := fmt.Sprintf("%scpu%d/cache/index%d/", cpuTree, cpu, level)
	tr.write(at+"level", fmt.Sprintln(level))
	tr.write(at+"shared_cpu_list", shared+"\n")
}
