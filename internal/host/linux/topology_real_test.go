package linux

import (
	"cmp"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
)

// lscpu numbers cores, packages, nodes and caches by code of its own.
func TestRealTopologyAgainstLscpu(t *testing.T) {
	program, err := exec.LookPath("lscpu")
	if err != nil {
		t.Skip("lscpu is not installed")
	}
	out, err := exec.Command(program, "--parse=CPU,CORE,SOCKET,NODE,CACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	topology, err := realHost(t).Topology()
	if err != nil {
		t.Fatal(err)
	}
	// Numbers may differ, but not what is together: each CPU stands for its group.
	type places struct{ core, cpuPackage, node, cache int }
	want, got := map[int]places{}, map[int]places{}
	seen := map[string]int{}
	first := func(kind, id string, cpu int) int {
		at, found := seen[kind+id]
		if !found {
			at, seen[kind+id] = cpu, cpu
		}
		return at
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSpace(line), ",")
		if strings.HasPrefix(line, "#") || len(fields) < 5 {
			continue
		}
		var cpu int
		if _, err := fmt.Sscan(fields[0], &cpu); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		caches := strings.Split(fields[4], ":")
		last := cmp.Or(caches[len(caches)-1], "of "+fields[2]) // a package, where there are none
		want[cpu] = places{
			first("core", fields[1], cpu), first("package", fields[2], cpu),
			first("node", fields[3], cpu), first("cache", last+"/"+fields[3], cpu),
		}
	}
	clear(seen)
	for _, cpu := range topology.Online().CPUs() {
		core := topology.Cores[slices.IndexFunc(topology.Cores, func(c model.Core) bool { return c.CPUs.Contains(cpu) })]
		got[cpu] = places{
			first("core", core.CPUs.String(), cpu), first("package", fmt.Sprint(core.Package), cpu),
			first("node", fmt.Sprint(core.NUMANode), cpu), first("cache", fmt.Sprint(core.LLC), cpu),
		}
	}
	if diff := gocmp.Diff(want, got, gocmp.AllowUnexported(places{})); diff != "" {
		t.Errorf("-lscpu +topology:\n%s", diff)
	}
}
