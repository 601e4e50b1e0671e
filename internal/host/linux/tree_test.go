package linux

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/host"
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
			got, err := h.Cpuset(id)
			if (err != nil) != test.fails || got.String() != test.want {
				t.Errorf("cpuset %q, %v; want %q, failing %v", got, err, test.want, test.fails)
			}
			id.Start-- // the number was an earlier process's
			if got, err := h.Cpuset(id); !errors.Is(err, host.ErrGone) {
				t.Errorf("cpuset %q of a process that ended, %v; want ErrGone", got, err)
			}
		})
	}
}

func TestProcessesOfATree(t *testing.T) {
	tr := newTree(t)
	tr.write("proc/meminfo", "")
	tr.process(10, "virtqemud", "0::/\n")
	id := tr.process(20, "qemu-kvm", "0::/x\n")
	tr.write("proc/30/stat", "30 (qemu-kvm) cut")
	tr.write("proc/99999999999999999999/stat", "")
	h := tr.host()
	processes := mustProcesses(t, h)
	want := []host.Process{{ID: id, Args: []string{"/usr/bin/qemu-kvm", "-name", "guest=shop_web"}, Cgroups: "0::/x\n"}}
	if diff := cmp.Diff(want, processes); diff != "" {
		t.Fatalf("-want +got:\n%s", diff)
	}
	sample, err := h.Sample(id)
	if err != nil || len(sample.Threads) != 2 || len(sample.Taps) != 2 {
		t.Errorf("sample %+v, %v; want two threads and two taps", sample, err)
	}
	t.Run("a command line of any length costs little", func(t *testing.T) {
		other := tr.process(40, "qemu-kvm", "0::/z\n")
		tr.write("proc/40/cmdline", "qemu\x00-name\x00guest=shop_db\x00"+strings.Repeat("x", maxFile))
		processes := mustProcesses(t, h)
		kept := len(strings.Join(processes[len(processes)-1].Args, " "))
		if kept > maxCmdline || processes[len(processes)-1].ID != other || processes[len(processes)-1].Args[2] != "guest=shop_db" {
			t.Errorf("%d bytes kept of process %v", kept, processes[len(processes)-1].ID)
		}
		if err := os.RemoveAll(filepath.Join(tr.dir, "proc/40")); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("a process that becomes a VM's later", func(t *testing.T) {
		tr.process(10, "qemu-kvm", "0::/y\n") // libvirt's child after exec
		if n := len(mustProcesses(t, h)); n != 2 {
			t.Errorf("%d processes, want 2", n)
		}
	})
	t.Run("a pod without a network namespace to read", func(t *testing.T) {
		if err := os.Remove(filepath.Join(tr.dir, "proc/20/net/dev")); err != nil {
			t.Fatal(err)
		}
		sample, err := h.Sample(id)
		if err != nil || sample.TapsErr == nil || len(sample.Threads) != 2 {
			t.Errorf("sample %+v, %v; want threads, and taps with an error", sample, err)
		}
	})
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
