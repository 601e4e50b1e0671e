package linux

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// machine makes the tree of a machine of testdata. Such a file has a line for each file
// ("path: content", with Go's escapes and without the last newline) and for each link
// ("path -> target"). In a path, [0-2] stands for each of the numbers, and {a,b} for
// each of the words.
func machine(t testing.TB, name string) *tree {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", name+".machine"))
	if err != nil {
		t.Fatal(err)
	}
	tr := newTree(t)
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "#") {
			continue
		}
		if path, target, ok := strings.Cut(line, " -> "); ok {
			tr.link(target, path)
			continue
		}
		path, text, ok := strings.Cut(line, ": ")
		if !ok {
			t.Fatalf("%s: %q is neither a file nor a link", name, line)
		}
		if strings.Contains(text, `\`) {
			if text, err = strconv.Unquote(`"` + strings.ReplaceAll(text, `"`, `\"`) + `"`); err != nil {
				t.Fatalf("%s: %q: %v", name, line, err)
			}
		}
		for _, one := range spread(t, path) {
			tr.write(one, text+"\n")
		}
	}
	return tr
}

// spread returns the paths that a path with [lists] and {words} stands for.
func spread(t testing.TB, path string) []string {
	t.Helper()
	start := strings.IndexAny(path, "[{")
	if start < 0 {
		return []string{path}
	}
	length := strings.IndexAny(path[start:], "]}")
	if length < 0 {
		t.Fatalf("%q has no closing bracket", path)
	}
	inner := path[start+1 : start+length]
	words := strings.Split(inner, ",")
	if path[start] == '[' {
		words = nil
		for _, n := range set(t, inner).CPUs() {
			words = append(words, strconv.Itoa(n))
		}
	}
	var paths []string
	for _, word := range words {
		paths = append(paths, spread(t, path[:start]+word+path[start+length+1:])...)
	}
	return paths
}

func set(t testing.TB, list string) units.CPUSet {
	t.Helper()
	cpus, err := units.ParseCPUSet(list)
	if err != nil {
		t.Fatal(err)
	}
	return cpus
}

// group is cores that share all but their CPUs.
type group struct {
	cpuPackage, numaNode, llc int
	class                     v1alpha1.CoreClass
	cores                     []string
}

func in(cpuPackage, numaNode, llc int, class v1alpha1.CoreClass, cores ...string) group {
	return group{cpuPackage, numaNode, llc, class, cores}
}

// coresOf lists the cores of groups in the order that a topology has them.
func coresOf(t testing.TB, groups ...group) []model.Core {
	t.Helper()
	var cores []model.Core
	for _, g := range groups {
		for _, list := range g.cores {
			cores = append(cores, model.Core{CPUs: set(t, list), Package: g.cpuPackage, NUMANode: g.numaNode, LLC: g.llc, Class: g.class})
		}
	}
	slices.SortFunc(cores, func(x, y model.Core) int { return x.CPUs.CPUs()[0] - y.CPUs.CPUs()[0] })
	return cores
}

func nic(t testing.TB, numaNode int, cpus string) model.NIC {
	return model.NIC{NUMANode: numaNode, CPUs: set(t, cpus)}
}

func TestMachines(t *testing.T) {
	const fast, low = v1alpha1.CorePerformance, v1alpha1.CoreEfficiency
	for name, want := range map[string]model.Topology{
		"desktop": {
			Cores:       coresOf(t, in(0, 0, 0, "", "0,8", "1,9", "2,10", "3,11", "4,12", "5,13", "6,14", "7,15")),
			DeepestIdle: "C3",
			NICs:        []model.NIC{nic(t, 0, "5")},
			Clocks:      model.Clocks{Governor: "schedutil", FollowLoad: true, Lowest: 2200, Highest: 3800, Base: 3801},
			CPUModel:    "AMD Ryzen 7 5800X 8-Core Processor",
		},
		"server": {
			Cores: coresOf(t,
				in(0, 0, 0, "", "0,64", "1,65", "2,66", "3,67"),
				in(0, 0, 1, "", "4,68", "5,69", "6,70", "7,71"),
				in(0, 1, 2, "", "8,72", "9,73", "10,74", "11,75"),
				in(0, 1, 3, "", "12,76", "13,77", "14,78", "15,79"),
				in(0, 2, 4, "", "16,80", "17,81", "18,82", "19,83"),
				in(0, 2, 5, "", "20,84", "21,85", "22,86", "23,87"),
				in(0, 3, 6, "", "24,88", "25,89", "26,90", "27,91"),
				in(0, 3, 7, "", "28,92", "29,93", "30,94", "31,95"),
				in(1, 4, 8, "", "32,96", "33,97", "34,98", "35,99"),
				in(1, 4, 9, "", "36,100", "37,101", "38,102", "39,103"),
				in(1, 5, 10, "", "40,104", "41,105", "42,106", "43,107"),
				in(1, 5, 11, "", "44,108", "45,109", "46,110", "47,111"),
				in(1, 6, 12, "", "48,112", "49,113", "50,114", "51,115"),
				in(1, 6, 13, "", "52,116", "53,117", "54,118", "55,119"),
				in(1, 7, 14, "", "56,120", "57,121", "58,122", "59,123"),
				in(1, 7, 15, "", "60,124", "61,125", "62,126", "63,127"),
			),
			Isolated: set(t, "30-31,94-95"), Taken: set(t, "0,4-7,30-31,64,68-71,94-95"),
			DeepestIdle: "C1",
			NICs:        []model.NIC{nic(t, 3, "24-25,88")},
			CPUModel:    "AMD EPYC 7543 32-Core Processor",
		},
		"hybrid": {
			Cores: coresOf(t,
				in(0, 0, 0, fast, "0-1", "2-3", "4-5", "6-7", "8-9", "10-11", "12-13", "14-15"),
				in(0, 0, 0, low, "16", "17", "18", "19"),
			),
			DeepestIdle: "C10",
			NICs:        []model.NIC{nic(t, 0, "0,2,4,16-17"), nic(t, 0, "6")},
			Clocks:      model.Clocks{Governor: "powersave", FollowLoad: true, Lowest: 800, Highest: 4800, Base: 2100},
			CPUModel:    "12th Gen Intel(R) Core(TM) i7-12700",
		},
		"nested": {
			Cores:    coresOf(t, in(0, 0, 0, "", "0"), in(1, 0, 1, "", "1"), in(2, 0, 2, "", "2"), in(3, 0, 3, "", "3")),
			NICs:     []model.NIC{nic(t, 0, "1-2")},
			Nested:   true,
			CPUModel: "Intel Xeon Processor (Icelake)",
		},
		"clustered": {
			Cores: coresOf(t,
				in(0, 0, 0, "", "0,16", "4,20", "8,24", "12"),
				in(1, 1, 1, "", "1,17", "5,21", "9,25", "13,29"),
				in(0, 2, 2, "", "2,18", "6,22", "10,26", "14,30"),
				in(1, 3, 3, "", "3,19", "7,23", "11,27", "15,31"),
			),
			Taken:       set(t, "0-1"),
			DeepestIdle: "C6",
			Clocks:      model.Clocks{Governor: "performance", Lowest: 1200, Highest: 3700, Base: 3200},
			CPUModel:    "Intel(R) Xeon(R) Gold 6134 CPU @ 3.20GHz",
		},
		"board": {
			Cores:       coresOf(t, in(0, 0, 0, low, "0", "1", "2", "3"), in(1, 0, 1, fast, "4")),
			DeepestIdle: "cpu-sleep",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := machine(t, name).host().Topology()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("topology (-want +got):\n%s", diff)
			}
		})
	}
}

func (tr *tree) mkdir(name string) {
	tr.t.Helper()
	if err := os.MkdirAll(filepath.Join(tr.dir, name), 0o755); err != nil {
		tr.t.Fatal(err)
	}
}
