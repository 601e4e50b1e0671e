package linux

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/host/hosttest"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// The kernel tells of packages and cores in /proc/cpuinfo too, by numbers of its own.
func TestRealTopologyAgainstCPUInfo(t *testing.T) {
	topology, err := realHost(t).Topology()
	if err != nil {
		t.Fatal(err)
	}
	proc, err := procfs.NewFS("/proc")
	if err != nil {
		t.Fatal(err)
	}
	infos, err := proc.CPUInfo()
	if err != nil {
		t.Fatal(err)
	}
	cores, packages := map[string][]int{}, map[int]string{}
	for _, info := range infos {
		if info.PhysicalID == "" {
			t.Skip("this processor's /proc/cpuinfo has no packages") // Arm
		}
		id := info.PhysicalID + "/" + info.CoreID
		cores[id] = append(cores[id], int(info.Processor))
		packages[int(info.Processor)] = info.PhysicalID
	}
	var want, got []string
	for _, cpus := range cores {
		want = append(want, units.NewCPUSet(cpus...).String())
	}
	for _, core := range topology.Cores {
		got = append(got, core.CPUs.String())
		if is := packages[core.CPUs.CPUs()[0]]; is != fmt.Sprint(core.Package) {
			t.Errorf("core %s is in package %d, /proc/cpuinfo says %s", core.CPUs, core.Package, is)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("cores (-cpuinfo +topology):\n%s", diff)
	}
}

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

// The interrupts of the cards that are found are those of /proc/interrupts.
func TestRealNICs(t *testing.T) {
	content, err := os.ReadFile("/proc/interrupts")
	if err != nil {
		t.Fatal(err)
	}
	topology, err := realHost(t).Topology()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, nic := range topology.NICs {
		got = append(got, nic.Name)
		if nic.CPUs.IsEmpty() || !nic.CPUs.IsSubsetOf(topology.Online()) {
			t.Errorf("%s: interrupts on CPUs %q", nic.Name, nic.CPUs)
		}
	}
	// By the names in the list: those of the card, or of its virtio device.
	var want []string
	links, err := filepath.Glob("/sys/class/net/*/device")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		name := filepath.Base(filepath.Dir(link))
		device, err := filepath.EvalSymlinks(link)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{name, filepath.Base(device) + "-input", filepath.Base(device)} {
			if bytes.Contains(content, []byte(word)) {
				want = append(want, name)
				break
			}
		}
	}
	if len(want) == 0 {
		t.Log("this machine has no network card with interrupts")
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("cards (-interrupts +topology):\n%s", diff)
	}
}

// The agent runs in a network namespace of its own, with the node's /sys.
func TestRealNICsAreTheNodesInAnyNamespace(t *testing.T) {
	h := realHost(t)
	want := h.nics()
	got := make(chan []model.NIC)
	failed := make(chan error, 1)
	go func() {
		defer close(got)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			failed <- err
			return
		}
		got <- h.nics()
	}()
	names := func(nics []model.NIC) []string {
		var names []string
		for _, nic := range nics {
			names = append(names, nic.Name)
		}
		return names
	}
	nics := <-got
	select {
	case err := <-failed:
		t.Fatal(err)
	default:
	}
	if diff := gocmp.Diff(names(want), names(nics)); diff != "" {
		t.Errorf("-the node's +those of another namespace:\n%s", diff)
	}
}

func TestRealActors(t *testing.T) {
	h := realHost(t)
	has := func(name host.ActorName) bool {
		t.Helper()
		actors, err := h.Actors()
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(actors, func(a host.Actor) bool { return a.Name == name })
	}
	if has(host.ActorTuned) {
		t.Skip("tuned runs on this machine")
	}
	vm := hosttest.StartVM(t, "shop", "web")
	vm.Thread("tuned") // a thread's name is not its process's
	if has(host.ActorTuned) {
		t.Error("a thread counts as the daemon")
	}
	end := hosttest.StartDaemon(t, "tuned")
	hosttest.Eventually(t, "the daemon to be seen", func() bool { return has(host.ActorTuned) })
	end()
	if has(host.ActorTuned) {
		t.Error("a daemon that ended is still there")
	}
}

func BenchmarkLookAround(b *testing.B) {
	h := realHost(b)
	for b.Loop() {
		if _, err := h.Topology(); err != nil {
			b.Fatal(err)
		}
		if _, err := h.Actors(); err != nil {
			b.Fatal(err)
		}
	}
}
