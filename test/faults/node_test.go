package faults

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host/hosttest"
	"github.com/joulevirt/joulevirt/test/cluster/stack"
)

// bootID is what the agent reads of the node's start.
const bootID = "/proc/sys/kernel/random/boot_id"

// diskFull has no space under the journal: nothing new is changed, and what was changed is reverted.
func (f *fault) diskFull() {
	was := world.StateDir
	disk := hosttest.NewDisk(f)
	world.StateDir = disk.Dir
	f.restartAgent()
	f.eventually("levers are in force", f.inForce)
	free := disk.Fill()
	f.pause(true)
	f.eventually("a full disk does not keep levers in force", f.untouched)
	f.pause(false)
	f.eventually("the plan says that it is not applied", func(ctx context.Context) error {
		plan, err := f.plan(ctx)
		if err != nil {
			return err
		}
		applied := meta.FindStatusCondition(plan.Status.Conditions, v1alpha1.ConditionApplied)
		if !plan.Spec.Apply || applied == nil || applied.ObservedGeneration != plan.Generation || applied.Status != metav1.ConditionFalse || !strings.Contains(applied.Message, "no space left on device") {
			return fmt.Errorf("Applied is %+v, of plan %d", applied, plan.Generation)
		}
		return nil
	})
	if err := f.untouched(f.Context()); err != nil {
		f.Errorf("with a full disk: %v", err)
	}
	free()
	f.eventually("levers are in force", f.inForce)
	world.StateDir = was // of the next agent
}

// nodeRestarts starts an agent after another boot, as the kernel says to it, with the journal of the
// boot before. That names the very threads that there are, as new ones may have their IDs, with slices
// that it would restore.
func (f *fault) nodeRestarts() {
	path := filepath.Join(world.StateDir, "journal.json")
	world.KillAgent()
	text, err := os.ReadFile(path)
	f.must(err)
	var old struct {
		BootID string `json:"bootID"`
		journal.Content
	}
	f.must(json.Unmarshal(text, &old))
	if len(old.Slices) == 0 {
		f.Fatalf("the journal names no thread: %s", text)
	}
	for i := range old.Slices {
		old.Slices[i].Ours, old.Slices[i].Original = 0, journal.Slice(handSlice)
	}
	out, err := exec.CommandContext(f.Context(), filepath.Join(world.Dir(), "programs", "agent"), "restore", "--state-dir="+world.StateDir).CombinedOutput()
	if err != nil {
		f.Fatalf("restore: %v: %s", err, out)
	}
	f.must(f.threadsUntouched(f.Context()))
	text, err = json.Marshal(old)
	f.must(err)
	f.must(os.WriteFile(path, text, 0o600))

	next := filepath.Join(f.TempDir(), "boot_id")
	f.must(os.WriteFile(next, []byte("11111111-2222-3333-4444-555555555555\n"), 0o600))
	f.pause(true)
	// The agent's alone: others on this machine read it too.
	world.AgentPrefix = []string{"/usr/bin/unshare", "--mount", "/bin/sh", "-c", `mount --bind "$0" ` + bootID + ` && exec "$@"`, next}
	defer func() { world.AgentPrefix = nil }()
	f.must(world.StartAgent(f.Context()))
	f.requests()
	f.eventually("the agent leaves what another boot had", f.untouched)
	f.pause(false)
}

// clocksSet sets the clocks of agent and manager forward and back by an hour, each alone. Where the
// manager's Lease looks an hour old, levers are reverted.
func (f *fault) clocksSet() {
	for _, program := range []*stack.Program{world.Agent(), world.Manager()} {
		clock := f.wallClock(program)
		for _, seconds := range []int32{3600, -3600} {
			f.Logf("the clock of the %s is set by %d s", program.Name, seconds)
			clock.set(f, seconds)
			if (program == world.Agent()) == (seconds > 0) {
				f.eventually("levers are reverted", f.threadsUntouched)
			}
			f.requests()
			clock.set(f, 0)
			f.eventually("levers are in force", f.inForce)
		}
	}
}

// wallClock is the wall clock of one running program, apart from that of the machine.
type wallClock struct {
	pid    int
	memory *os.File
	// code is where clock_gettime is in the program's vDSO, from to the vDSO's range.
	code, from, to int64
}

// wallClock replaces clock_gettime in a program's vDSO, through which Go reads all clocks, by one
// that asks the kernel and adds a number of seconds to the wall clock:
//
//	mov eax, 228; syscall; test edi, edi; jne end; add qword [rsi], seconds; end: ret
func (f *fault) wallClock(p *stack.Program) *wallClock {
	f.Helper()
	c := &wallClock{pid: p.PID}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.PID))
	f.must(err)
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "[vdso]") {
			_, err = fmt.Sscanf(line, "%x-%x", &c.from, &c.to)
			f.must(err)
		}
	}
	c.memory, err = os.OpenFile(fmt.Sprintf("/proc/%d/mem", p.PID), os.O_RDWR, 0)
	f.must(err)
	f.Cleanup(func() { c.memory.Close() })
	image := make([]byte, c.to-c.from)
	_, err = c.memory.ReadAt(image, c.from)
	f.must(err)
	file, err := elf.NewFile(bytes.NewReader(image))
	f.must(err)
	symbols, err := file.DynamicSymbols()
	f.must(err)
	for _, symbol := range symbols {
		if symbol.Name == "__vdso_clock_gettime" {
			c.code = c.from + int64(symbol.Value)
		}
	}
	if c.code == 0 {
		f.Fatal("the vDSO has no clock_gettime")
	}
	return c
}

// set has the wall clock be so many seconds ahead of the machine's.
func (c *wallClock) set(f *fault, seconds int32) {
	f.Helper()
	code := []byte("\xb8\xe4\x00\x00\x00\x0f\x05\x85\xff\x75\x07\x48\x81\x06")
	code = append(binary.LittleEndian.AppendUint32(code, uint32(seconds)), 0xc3)
	f.eventually("the program stands still outside of its vDSO", func(context.Context) error {
		f.must(syscall.Kill(c.pid, syscall.SIGSTOP))
		if err := c.outside(); err != nil {
			f.must(syscall.Kill(c.pid, syscall.SIGCONT))
			return err
		}
		return nil
	})
	_, err := c.memory.WriteAt(code, c.code)
	f.must(err)
	f.must(syscall.Kill(c.pid, syscall.SIGCONT))
}

// outside is satisfied when all threads are stopped and none in the vDSO.
func (c *wallClock) outside() error {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", c.pid))
	if err != nil || len(threads) == 0 {
		return fmt.Errorf("threads %v: %w", threads, err)
	}
	for _, thread := range threads {
		status, err := os.ReadFile(filepath.Join(thread, "status"))
		if err != nil || !strings.Contains(string(status), "State:\tT") {
			return fmt.Errorf("%s is not stopped: %w", thread, err)
		}
		text, err := os.ReadFile(filepath.Join(thread, "syscall"))
		if err != nil {
			return err
		}
		fields := strings.Fields(string(text))
		at, err := strconv.ParseInt(fields[len(fields)-1], 0, 64)
		if err != nil || at >= c.from && at < c.to {
			return fmt.Errorf("%s is at %s: %w", thread, text, err)
		}
	}
	return nil
}
