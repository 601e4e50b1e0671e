//go:build e2e

package faults

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
)

// diskFull has no space under the journal: nothing new is changed, and what was changed is reverted.
func (f *fault) diskFull() {
	f.endAgent()
	f.onNode("/bin/mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "tmpfs", stateDir)
	f.startAgent()
	f.eventually("levers are in force", f.inForce)
	const ballast = stateDir + "/ballast"
	if _, err := f.node.Run(f.Context(), "/bin/dd", "if=/dev/zero", "of="+ballast, "bs=4096"); err == nil || !strings.Contains(err.Error(), "No space left on device") {
		f.Fatalf("fill the disk: %v", err)
	}
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
	f.onNode("/bin/rm", ballast)
	f.eventually("levers are in force", f.inForce)
	f.onNode("/bin/umount", stateDir) // the next agent has the old one
}

func (f *fault) onNode(program string, args ...string) {
	f.Helper()
	_, err := f.node.Run(f.Context(), program, args...)
	f.must(err)
}

// nodeRestarts starts an agent with the journal of another boot. That names the very threads that
// there are, as new ones may have their IDs, with slices that it would restore.
func (f *fault) nodeRestarts() {
	path := f.journalFile()
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
	old.BootID = "11111111-2222-3333-4444-555555555555"
	for i := range old.Slices {
		old.Slices[i].Ours, old.Slices[i].Original = 0, journal.Slice(handSlice)
	}
	text, err = json.Marshal(old)
	f.must(err)
	f.endAgent()
	f.must(f.threadsUntouched(f.Context()))
	f.must(os.WriteFile(path, text, 0o600))
	f.pause(true)
	f.startAgent()
	f.requests()
	f.eventually("the agent leaves what another boot had", f.untouched)
	f.pause(false)
}

// clocksSet sets the clocks of agent and manager forward and back by an hour, each alone. Where the
// manager's Lease looks an hour old, levers are reverted.
func (f *fault) clocksSet() {
	for _, program := range []process{f.agent(), f.leader()} {
		clock := f.wallClock(program)
		for _, seconds := range []int32{3600, -3600} {
			f.Logf("the clock of the %s is set by %d s", program.name, seconds)
			clock.set(f, seconds)
			if (program.name == "agent") == (seconds > 0) {
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
func (f *fault) wallClock(p process) *wallClock {
	f.Helper()
	c := &wallClock{pid: p.pid}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.pid))
	f.must(err)
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "[vdso]") {
			_, err = fmt.Sscanf(line, "%x-%x", &c.from, &c.to)
			f.must(err)
		}
	}
	c.memory, err = os.OpenFile(fmt.Sprintf("/proc/%d/mem", p.pid), os.O_RDWR, 0)
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
