package affinity

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/joulevirt/joulevirt/internal/agent/actuate/thread"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/host/hosttest"
	"github.com/joulevirt/joulevirt/internal/host/linux"
	"github.com/joulevirt/joulevirt/internal/units"
)

// qemu is a real QEMU without a guest's disk, with its monitor.
type qemu struct {
	t       *testing.T
	pid     int
	conn    net.Conn
	answers *bufio.Scanner
}

func startQEMU(t *testing.T) *qemu {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "qmp")
	cmd := exec.Command("qemu-system-x86_64", "-name", "guest=shop_web,debug-threads=on",
		"-accel", "tcg,thread=multi", "-smp", "2", "-m", "64", "-nodefaults", "-display", "none", "-S",
		"-qmp", "unix:"+socket+",server=on,wait=off")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatalf("start QEMU (is qemu-system-x86 installed?): %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // its status says that it was killed
	})
	q := &qemu{t: t, pid: cmd.Process.Pid}
	hosttest.Eventually(t, "QEMU's monitor", func() bool {
		conn, err := net.Dial("unix", socket)
		q.conn = conn
		return err == nil
	})
	t.Cleanup(func() { q.conn.Close() })
	q.answers = bufio.NewScanner(q.conn)
	q.do("qmp_capabilities", nil)
	return q
}

// do gives a command and waits for its answer.
func (q *qemu) do(command string, arguments map[string]any) {
	q.t.Helper()
	text, err := json.Marshal(map[string]any{"execute": command, "arguments": arguments})
	if arguments == nil {
		text, err = json.Marshal(map[string]any{"execute": command})
	}
	if err != nil {
		q.t.Fatal(err)
	}
	if _, err := q.conn.Write(text); err != nil {
		q.t.Fatal(err)
	}
	for q.answers.Scan() {
		var answer struct {
			Return *json.RawMessage `json:"return"`
			Error  *json.RawMessage `json:"error"`
		}
		if err := json.Unmarshal(q.answers.Bytes(), &answer); err != nil {
			q.t.Fatal(err)
		}
		if answer.Error != nil {
			q.t.Fatalf("%s: %s", command, *answer.Error)
		}
		if answer.Return != nil {
			return
		}
	}
	q.t.Fatalf("%s: QEMU ended", command)
}

// The threads of a live migration are created by QEMU's main thread, with its mask and
// after it was bound; they are let loose, and the main thread stays bound.
func TestQEMUMigratesOnAllCPUs(t *testing.T) {
	one, other := hosttest.TwoCPUs(t)
	both := one.Union(other)
	pod := hosttest.NewPod(t, both.String())
	q := startQEMU(t)
	pod.AddPID(q.pid)
	h, err := linux.New(linux.Options{ProcRoot: "/proc", SysRoot: "/sys"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	actuator := New(h, &store{}, nil)
	pins := map[string]Pins{pod.UID: {Emulator: one, VCPUs: map[int]units.CPUSet{0: one, 1: other}}}
	round := func() (Result, []host.ThreadSample) {
		t.Helper()
		processes, err := h.Processes()
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(processes, func(p host.Process) bool { return p.ID.PID == q.pid })
		if at < 0 {
			t.Fatalf("QEMU is not found in %v", processes)
		}
		sample, err := h.Sample(processes[at].ID)
		if err != nil {
			t.Fatal(err)
		}
		vm := VM{VM: discover.VM{Process: processes[at].ID, PodUID: pod.UID}, Cpuset: both, Threads: Threads(sample)}
		results, err := actuator.Apply([]VM{vm}, pins)
		if err != nil {
			t.Fatal(err)
		}
		return results[0], sample.Threads
	}
	if r, _ := round(); r.Outcome != thread.Applied || len(r.Held) != 3 {
		t.Fatalf("binding: %+v", r)
	}
	before := map[int]bool{}
	_, threads := round()
	for _, s := range threads {
		before[s.ID.TID] = true
	}

	// Slow enough to be seen: a few kilobytes a second.
	q.do("migrate-set-parameters", map[string]any{"max-bandwidth": 4096})
	q.do("migrate", map[string]any{"uri": "exec:cat > /dev/null"})
	var young []host.ThreadSample
	hosttest.Eventually(t, "the threads of the migration", func() bool {
		_, threads := round()
		young = slices.DeleteFunc(threads, func(s host.ThreadSample) bool { return before[s.ID.TID] })
		return slices.ContainsFunc(young, func(s host.ThreadSample) bool { return !s.CPUs.Equal(both) })
	})
	_, threads = round()
	for _, s := range threads {
		got, err := h.Affinity(s.ID)
		if err != nil {
			continue // it ended
		}
		want := both
		switch role := discover.RoleOf(s.Thread); {
		case role.Kind == discover.Emulator, role == discover.Role{Kind: discover.VCPU}:
			want = one
		case role.Kind == discover.VCPU:
			want = other
		}
		if !got.Equal(want) {
			t.Errorf("thread %q runs on %v, want %v", s.Name, got, want)
		}
	}
	t.Log("new threads: " + fmt.Sprint(names(young)) + " of process " + strconv.Itoa(q.pid))
}

func names(threads []host.ThreadSample) (names []string) {
	for _, s := range threads {
		names = append(names, fmt.Sprintf("%s on %v", s.Name, s.CPUs))
	}
	return names
}
