package linux

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/hosttest"
)

// tree is a made-up node.
type tree struct {
	t   testing.TB
	dir string
}

func newTree(t testing.TB) *tree {
	tr := &tree{t: t, dir: t.TempDir()}
	for _, dir := range []string{"proc", "sys/fs/cgroup"} {
		if err := os.MkdirAll(filepath.Join(tr.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return tr
}

func (tr *tree) write(name, content string) {
	tr.t.Helper()
	path := filepath.Join(tr.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tr.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		tr.t.Fatal(err)
	}
}

func (tr *tree) link(target, name string) {
	tr.t.Helper()
	path := filepath.Join(tr.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tr.t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		tr.t.Fatal(err)
	}
}

// process is a QEMU with one thread besides the main one.
func (tr *tree) process(pid int, comm, cgroups string) host.TaskID {
	base := fmt.Sprintf("proc/%d/", pid)
	stat := func(tid int, comm string) string { return fmt.Sprintf("%d (%s)%s", tid, comm, stat22) }
	tr.write(base+"stat", stat(pid, comm))
	tr.write(base+"cmdline", "/usr/bin/qemu-kvm\x00-name\x00guest=shop_web\x00")
	tr.write(base+"cgroup", cgroups)
	tr.write(base+"net/dev", netDev)
	for tid, name := range map[int]string{pid: comm, pid + 1: "CPU 0/KVM"} {
		tr.write(fmt.Sprintf("%stask/%d/stat", base, tid), stat(tid, name))
		tr.write(fmt.Sprintf("%stask/%d/schedstat", base, tid), "10 20 30\n")
	}
	return host.TaskID{PID: pid, TID: pid, Start: 4711}
}

func (tr *tree) host() *Host {
	tr.t.Helper()
	h, err := New(Options{ProcRoot: filepath.Join(tr.dir, "proc"), SysRoot: filepath.Join(tr.dir, "sys")})
	if err != nil {
		tr.t.Fatal(err)
	}
	tr.t.Cleanup(func() { h.Close() })
	return h
}

func TestCpuset(t *testing.T) {
	for name, test := range map[string]struct {
		cgroups string
		files   map[string]string
		want    string
		fails   bool
	}{
		"version 2": {
			cgroups: "0::/kubepods/podx/c\n",
			files:   map[string]string{"cgroup.controllers": "cpuset", "kubepods/podx/c/cpuset.cpus.effective": "2-3\n"},
			want:    "2-3",
		},
		"version 2, the controller is on further up": {
			cgroups: "0::/kubepods/podx/c\n",
			files: map[string]string{
				"cgroup.controllers": "cpuset", "kubepods/podx/c/cgroup.procs": "", "kubepods/cpuset.cpus.effective": "0-1\n",
				"cpuset.cpus.effective": "0-7\n",
			},
			want: "0-1",
		},
		"version 1": {
			cgroups: "4:memory:/other\n3:cpuset:/kubepods/podx/c\n0::/\n",
			files:   map[string]string{"cpuset/kubepods/podx/c/cpuset.effective_cpus": "5\n"},
			want:    "5",
		},
		"version 1, several controllers in one hierarchy": {
			cgroups: "3:cpu,cpuset:/a\n",
			files:   map[string]string{"cpuset/a/cpuset.effective_cpus": "6\n"},
			want:    "6",
		},
		"an own cgroup namespace": {
			cgroups: "0::/../podx/c\n",
			files: map[string]string{
				"cgroup.controllers":                    "cpuset",
				"kubepods/agent/cgroup.procs":           fmt.Sprintf("1\n%d\n", os.Getpid()),
				"kubepods/podx/c/cpuset.cpus.effective": "4\n",
			},
			want: "4",
		},
		"an own cgroup that is not to be found": {
			cgroups: "0::/../podx/c\n", files: map[string]string{"cgroup.controllers": "cpuset"}, fails: true,
		},
		"a path out of the root": {
			cgroups: "0::/a/../../../../../etc\n", files: map[string]string{"cgroup.controllers": "cpuset"}, fails: true,
		},
		"no cpuset":    {cgroups: "4:memory:/other\n", fails: true},
		"not a cgroup": {cgroups: "nonsense", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t)
			for file, content := range test.files {
				tr.write("sys/fs/cgroup/"+file, content)
			}
			id := tr.process(100, "qemu-kvm", test.cgroups)
			h := tr.host()
			mustProcesses(t, h)
			got, err := h.Sample(id)
			if err != nil || (got.CpusetErr != nil) != test.fails || got.Cpuset.String() != test.want {
				t.Errorf("cpuset %q, %v, %v; want %q, failing %v", got.Cpuset, got.CpusetErr, err, test.want, test.fails)
			}
		})
	}
}

// What seldom changes is read when something shows that it did, and in time without.
func TestWhatSeldomChanges(t *testing.T) {
	one, other := hosttest.TwoCPUs(t)
	both := one.Union(other)
	pod := hosttest.NewPod(t, both.String())
	vm := hosttest.StartVM(t, "shop", "web")
	thread := vm.Thread("CPU 0/TCG")
	pod.Add(vm)
	h, foreign := realHost(t), realHost(t)
	round := func() (cpuset, mask units.CPUSet) {
		t.Helper()
		nextRound(t, h)
		sample, err := h.Sample(vm.ID())
		if err != nil || sample.CpusetErr != nil {
			t.Fatal(err, sample.CpusetErr)
		}
		for _, s := range sample.Threads {
			if s.ID == thread {
				mask = s.CPUs
			}
		}
		return sample.Cpuset, mask
	}
	for range youngRounds + 1 {
		round()
	}
	want := func(what string, wantCpuset, wantMask units.CPUSet) {
		t.Helper()
		if cpuset, mask := round(); !cpuset.Equal(wantCpuset) || !mask.Equal(wantMask) {
			t.Errorf("%s: cpuset %v, affinity %v; want %v and %v", what, cpuset, mask, wantCpuset, wantMask)
		}
	}
	if err := h.SetAffinity(thread, one); err != nil {
		t.Fatal(err)
	}
	want("this host's own change shows in the next round", both, one)
	if err := foreign.SetAffinity(thread, other); err != nil {
		t.Fatal(err)
	}
	for range slowRounds - 1 {
		round()
	}
	want("somebody else's change shows within some rounds", both, other)
	pod.SetCPUs(one.String())
	for range slowRounds - 1 {
		round()
	}
	want("a change of the cpuset shows within some rounds, with what the kernel made of affinities", one, one)
}

// Files are closed with their processes, and when too many are open.
func TestOpenFiles(t *testing.T) {
	tr := newTree(t)
	id := tr.process(20, "qemu-kvm", "0::/x\n")
	h := tr.host()
	round := func(kept int) {
		t.Helper()
		mustProcesses(t, h)
		if sample, err := h.Sample(id); err != nil || len(sample.Threads) != 2 || len(sample.Taps) != 2 {
			t.Errorf("sample %+v, %v", sample, err)
		}
		if h.kept != kept {
			t.Errorf("%d files are open, want %d", h.kept, kept)
		}
	}
	round(3)
	round(3)
	if err := os.RemoveAll(filepath.Join(tr.dir, "proc/20")); err != nil {
		t.Fatal(err)
	}
	if mustProcesses(t, h); h.kept != 0 {
		t.Errorf("%d files of a process that ended are open", h.kept)
	}
	id = tr.process(30, "qemu-kvm", "0::/x\n")
	h.mostKept = 1
	round(1)
	round(1)
}

func TestProcessesOfATree(t *testing.T) {
	tr := newTree(t)
	tr.write("proc/meminfo", "")
	tr.process(10, "virtqemud", "0::/\n")
	id := tr.process(20, "qemu-kvm", "0::/kubepods/pod"+aPod+"/x\n")
	tr.write("proc/30/stat", "30 (qemu-kvm) cut")
	tr.write("proc/99999999999999999999/stat", "")
	h := tr.host()
	processes := mustProcesses(t, h)
	want := []host.Process{{ID: id, PodUID: aPod, Guest: "shop_web"}}
	if diff := cmp.Diff(want, processes); diff != "" {
		t.Fatalf("-want +got:\n%s", diff)
	}
	sample, err := h.Sample(id)
	if err != nil || len(sample.Threads) != 2 || len(sample.Taps) != 2 {
		t.Errorf("sample %+v, %v; want two threads and two taps", sample, err)
	}
	t.Run("a process that becomes a VM's later", func(t *testing.T) {
		tr.process(10, "qemu-kvm", "0::/y\n") // libvirt's child after exec
		if n := len(mustProcesses(t, h)); n != 2 {
			t.Errorf("%d processes, want 2", n)
		}
	})
	t.Run("a pod without a network namespace to read", func(t *testing.T) {
		id := host.TaskID{PID: 10, TID: 10, Start: id.Start}
		if err := os.Remove(filepath.Join(tr.dir, "proc/10/net/dev")); err != nil {
			t.Fatal(err)
		}
		sample, err := h.Sample(id)
		if err != nil || sample.TapsErr == nil || len(sample.Threads) != 2 {
			t.Errorf("sample %+v, %v; want threads, and taps with an error", sample, err)
		}
	})
}

// A pod may have any number of processes that call themselves QEMU, with command lines of any
// length: they cost little, and keep no other pod's VM from being found.
func TestProcessesOfAHostilePod(t *testing.T) {
	tr := newTree(t)
	const many, most = 2000, 512 << 10
	for i := range many {
		pid := 1000 + i
		tr.write(fmt.Sprintf("proc/%d/stat", pid), fmt.Sprintf("%d (qemu-x)%s", pid, stat22))
		tr.write(fmt.Sprintf("proc/%d/cgroup", pid), "0::/kubepods/pod"+otherPod+"/x\n")
		tr.write(fmt.Sprintf("proc/%d/cmdline", pid), fmt.Sprintf("q\x00-name\x00guest=shop_%d\x00%s", pid, strings.Repeat("a\x00", 2048)))
		tr.mkdir(fmt.Sprintf("proc/%d/task", pid))
	}
	id := tr.process(9999, "qemu-kvm", "0::/kubepods/pod"+aPod+"/x\n")
	h := tr.host()
	files, heap := openFiles(t), heapInUse()
	var processes []host.Process
	for range refreshRounds + 1 {
		processes = mustProcesses(t, h)
	}
	if grown := heapInUse() - heap; grown > most {
		t.Errorf("%d bytes are kept, want %d at most", grown, most)
	}
	if grown := openFiles(t) - files; grown > 0 {
		t.Errorf("%d files are open of processes that nobody samples", grown)
	}
	if len(processes) != mostOfAPod+1 || processes[mostOfAPod].ID != id {
		t.Errorf("%d processes, want %d of the hostile pod and %v", len(processes), mostOfAPod, id)
	}
}

func heapInUse() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

func openFiles(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// Of the threads of a process a bounded number is read.
func TestThreadsOfATreeAreBounded(t *testing.T) {
	tr := newTree(t)
	id := tr.process(20, "qemu-kvm", "0::/x\n")
	for tid := 100; tid < 102+mostThreads; tid++ {
		tr.write(fmt.Sprintf("proc/20/task/%d/stat", tid), fmt.Sprintf("%d (x)%s", tid, stat22))
		tr.write(fmt.Sprintf("proc/20/task/%d/schedstat", tid), "1 2 3\n")
	}
	h := tr.host()
	mustProcesses(t, h)
	if sample, err := h.Sample(id); err != nil || len(sample.Threads) != mostThreads {
		t.Errorf("%d threads, %v; want %d", len(sample.Threads), err, mostThreads)
	}
}

func TestFacts(t *testing.T) {
	facts, err := realHost(t).Facts()
	if err != nil {
		t.Fatal(err)
	}
	if facts.BootID == "" || facts.Kernel == "" {
		t.Errorf("facts %+v", facts)
	}
	for _, c := range facts.Capabilities {
		if c.Available == (c.Message != "") {
			t.Errorf("capability %+v: what is missing is to be said, and only that", c)
		}
	}
}

// A thread that sleeps for long is read seldom, a vCPU always.
func TestSleepingThreads(t *testing.T) {
	tr := newTree(t)
	id := tr.process(20, "qemu-kvm", "0::/x\n")
	h := tr.host()
	var switches uint64 = 30
	// changes returns after how many rounds a change of its counters shows of a thread.
	changes := func(name string, tid int) int {
		t.Helper()
		switches++
		tr.write(fmt.Sprintf("proc/20/task/%d/schedstat", tid), fmt.Sprintf("10 20 %d\n", switches))
		for rounds := 1; rounds < 10; rounds++ {
			nextRound(t, h)
			sample, err := h.Sample(id)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range sample.Threads {
				if s.Name == name && s.Switches == switches {
					return rounds
				}
			}
		}
		t.Fatalf("a change of thread %q never shows", name)
		return 0
	}
	sleep := func(rounds int) {
		for range rounds {
			nextRound(t, h)
			if _, err := h.Sample(id); err != nil {
				t.Fatal(err)
			}
		}
	}
	most := 0
	for range wakeRounds {
		if sleep(idleRounds - 5); changes("qemu-kvm", 20) != 1 {
			t.Error("a thread that slept for a moment is read seldom")
		}
		sleep(idleRounds + 1 + most)
		most = max(most, changes("qemu-kvm", 20))
		if changes("CPU 0/KVM", 21) != 1 {
			t.Error("a vCPU that slept is read seldom")
		}
	}
	if most < 2 || most > wakeRounds {
		t.Errorf("a thread that slept for long is read after %d rounds, want at most %d", most, wakeRounds)
	}
}
