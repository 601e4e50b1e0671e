package linux

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	staticState = `{"policyName":"static","defaultCpuSet":"0-1,4-7","entries":{"pod":{"a":"2","b":"3"}},"checksum":1}`
	staticConf  = "kind: KubeletConfiguration\ncpuManagerPolicy: static\nreservedSystemCPUs: 0-1\n"
)

// pipe makes a pipe that nobody writes to: who opens it waits.
func (tr *tree) pipe(name string) {
	tr.t.Helper()
	tr.mkdir(filepath.Dir(name))
	if err := unix.Mkfifo(filepath.Join(tr.dir, name), 0o600); err != nil {
		tr.t.Fatal(err)
	}
}

func TestKubelet(t *testing.T) {
	const state, config = "node/var/lib/kubelet/cpu_manager_state", "node/var/lib/kubelet/config.yaml"
	type cpus struct {
		Static              bool
		Exclusive, Reserved string
	}
	for name, test := range map[string]struct {
		make func(*tree)
		want cpus
	}{
		"no kubelet":              {func(*tree) {}, cpus{}},
		"both files":              {func(tr *tree) { tr.write(state, staticState); tr.write(config, staticConf) }, cpus{true, "2-3", "0-1"}},
		"the configuration alone": {func(tr *tree) { tr.write(config, staticConf) }, cpus{true, "", "0-1"}},
		"the state alone":         {func(tr *tree) { tr.write(state, staticState) }, cpus{true, "2-3", ""}},
		"a configuration that the kubelet has not taken up": {func(tr *tree) {
			tr.write(state, `{"policyName":"none","defaultCpuSet":"","checksum":1}`)
			tr.write(config, staticConf)
		}, cpus{false, "", "0-1"}},
		"a state that is cut": {func(tr *tree) { tr.write(state, staticState[:60]); tr.write(config, staticConf) }, cpus{true, "", "0-1"}},
		"a state too long to be one": {func(tr *tree) {
			tr.write(state, staticState+strings.Repeat(" ", maxKubeletFile))
		}, cpus{}},
		"a state of another form": {func(tr *tree) { tr.write(state, `{"policyName":"static","entries":{"id":"2"}}`) }, cpus{}},
		"links of the node's own": {func(tr *tree) {
			tr.write("node/data/kubelet/cpu_manager_state", staticState)
			tr.link("/data/kubelet", "node/var/lib/kubelet")
		}, cpus{true, "2-3", ""}},
		"a link out of the node": {func(tr *tree) {
			tr.write("outside", staticState)
			tr.link(filepath.Join(tr.dir, "outside"), state)
		}, cpus{}},
		"credentials where others have the configuration": {func(tr *tree) {
			tr.write("node/etc/kubernetes/kubelet.conf", "kind: Config\nreservedSystemCPUs: 5\n")
			tr.write("node/etc/kubernetes/kubelet/kubelet-config.json", `{"kind":"KubeletConfiguration","reservedSystemCPUs":"7"}`)
		}, cpus{false, "", "7"}},
		"reserved CPUs that are no list": {func(tr *tree) {
			tr.write(config, "kind: KubeletConfiguration\nreservedSystemCPUs: all\n")
			tr.write(state, staticState)
		}, cpus{true, "2-3", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t)
			tr.mkdir("node")
			tr.link("../../node", "proc/1/root")
			test.make(tr)
			k := tr.host().kubelet()
			if diff := cmp.Diff(test.want, cpus{k.static, k.exclusive.String(), k.reserved.String()}); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	t.Run("a node whose first process is not to be seen", func(t *testing.T) {
		if k := newTree(t).host().kubelet(); k.static || !k.exclusive.IsEmpty() || !k.reserved.IsEmpty() {
			t.Errorf("%+v", k)
		}
	})
}

func FuzzParseCPUManagerState(f *testing.F) {
	for _, seed := range []string{
		staticState, `{"policyName":"none","defaultCpuSet":"","checksum":3242152201}`, `{}`, ``, `null`, `[`,
		`{"policyName":"static","entries":{"p":{"c":"0-9999999"}}}`, `{"policyName":"static","entries":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		state, err := parseCPUManagerState(content)
		if err != nil {
			if state.policy != "" || !state.exclusive.IsEmpty() {
				t.Errorf("%+v beside %v", state, err)
			}
			return
		}
		// What was understood reads the same when it is written by somebody else.
		again, err := json.Marshal(map[string]any{
			"policyName": state.policy, "entries": map[string]any{"pod": map[string]string{"all": state.exclusive.String()}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := parseCPUManagerState(again); err != nil || got.policy != state.policy || !got.exclusive.Equal(state.exclusive) {
			t.Errorf("%s reads as %+v, %v; want %+v", again, got, err, state)
		}
	})
}

func FuzzParseKubeletConfig(f *testing.F) {
	for _, seed := range []string{
		staticConf, `{"kind":"KubeletConfiguration","reservedSystemCPUs":"0-1"}`, "kind: Config", "", "a: &a [*a]", "kind: [",
		"kind: KubeletConfiguration\nreservedSystemCPUs: 3\n", "kind: KubeletConfiguration\nreservedSystemCPUs: [3]\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		config, err := parseKubeletConfig(content)
		if err != nil && (config.policy != "" || !config.reserved.IsEmpty()) {
			t.Errorf("%+v beside %v", config, err)
		}
		for _, cpu := range config.reserved.CPUs() {
			if cpu >= units.MaxCPUs {
				t.Errorf("CPU %d", cpu)
			}
		}
	})
}

// FuzzInterrupts plants names among a card's interrupts and texts in their files.
func FuzzInterrupts(f *testing.F) {
	f.Add("24", "eth0\n", "0-1\n", "3\n")
	f.Add("24", "virtio0-config\n", "0\n", "0\n")
	f.Add("-1", "", "", "")
	f.Add("x", "a,b", "x", "0-0")
	f.Fuzz(func(t *testing.T, name, actions, effective, allowed string) {
		tr := newTree(t)
		irq := "24"
		tr.write("sys/device/msi_irqs/"+irq, "msix")
		if name != "." && name != ".." && name != "" && len(name) < 200 && !strings.ContainsAny(name, "/\x00") {
			tr.write("sys/device/msi_irqs/"+name, "msix")
		}
		tr.write("sys/kernel/irq/24/actions", actions)
		tr.write("proc/irq/24/effective_affinity_list", effective)
		tr.write("proc/irq/24/smp_affinity_list", allowed)
		h := tr.host()
		numbers := interrupts(filepath.Join(tr.dir, "sys/device"))
		if len(numbers) == 0 || len(numbers) > 2 {
			t.Fatalf("interrupts %v", numbers)
		}
		got := h.interruptCPUs(24)
		one, oneErr := units.ParseCPUSet(effective)
		other, otherErr := units.ParseCPUSet(allowed)
		switch {
		case !movesPackets(actions) && !got.IsEmpty():
			t.Errorf("CPUs %s of an interrupt that no packet raises", got)
		case movesPackets(actions) && oneErr == nil && !one.IsEmpty() && !got.Equal(one):
			t.Errorf("CPUs %s, want %s", got, one)
		case movesPackets(actions) && (oneErr != nil || one.IsEmpty()) && otherErr == nil && !got.Equal(other):
			t.Errorf("CPUs %s, want %s", got, other)
		}
	})
}

// The file system of a process is what the kernel says it is, not a folder of this test:
// here that of a thread with a root of its own.
func TestRealRootOfAProcess(t *testing.T) {
	tr := newTree(t)
	tr.write("node/data/cpu_manager_state", staticState)
	tr.link("/data", "node/var/lib/kubelet")
	tr.executable("node/opt/nri/plugins/10-balloons")
	tid, end := make(chan int), make(chan struct{})
	t.Cleanup(func() { close(end) })
	failed := make(chan error, 1)
	go func() {
		defer close(tid)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := errors.Join(unix.Unshare(unix.CLONE_FS), unix.Chroot(filepath.Join(tr.dir, "node"))); err != nil {
			failed <- err
			return
		}
		tid <- unix.Gettid()
		<-end
	}()
	thread, ok := <-tid
	if !ok {
		t.Fatal(<-failed)
	}
	tr.link(fmt.Sprintf("/proc/%d/task/%d", os.Getpid(), thread), "proc/1")
	h := tr.host()
	if k := h.kubelet(); !k.static || k.exclusive.String() != "2-3" {
		t.Errorf("the kubelet's files say %+v", k)
	}
	if !h.nriPlugins() {
		t.Error("no plug-in found")
	}
}
