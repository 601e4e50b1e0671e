package hosttest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/joulevirt/joulevirt/internal/host"
)

// Comm is the comm of a VM's process.
const Comm = "qemu-system-x86"

// VM is a process that looks like a VM's QEMU.
type VM struct {
	t       testing.TB
	cmd     *exec.Cmd
	orders  io.WriteCloser
	answers *bufio.Scanner
	main    host.TaskID
}

// StartVM starts a process named after a VMI, with threads of the given names
// besides its main thread and those of the Go runtime. It ends with the test.
func StartVM(t testing.TB, namespace, name string, threads ...string) *VM {
	t.Helper()
	vm := startVM(t, namespace, name, nil)
	for _, name := range threads {
		vm.Thread(name)
	}
	return vm
}

func startVM(t testing.TB, namespace, name string, attr *syscall.SysProcAttr) *VM {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	vm := &VM{t: t, cmd: exec.Command(self)}
	guest := fmt.Sprintf("guest=%s_%s,debug-threads=on", namespace, name)
	vm.cmd.Args = []string{"/usr/bin/qemu-system-x86_64", "-name", guest, "-S"}
	vm.cmd.Env = []string{guestVariable + "=" + Comm}
	vm.cmd.Stderr = os.Stderr
	vm.cmd.SysProcAttr = attr
	if vm.orders, err = vm.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	answers, err := vm.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	vm.answers = bufio.NewScanner(answers)
	if err := vm.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(vm.End)
	vm.answer()
	vm.main = vm.id(vm.PID())
	return vm
}

// answer waits for the process to have obeyed, and returns its number.
func (v *VM) answer() int {
	v.t.Helper()
	if !v.answers.Scan() {
		v.t.Fatalf("process %d of the VM ended", v.PID())
	}
	number, ok := strings.CutPrefix(v.answers.Text(), "ok ")
	tid, err := strconv.Atoi(number)
	if !ok || err != nil {
		v.t.Fatalf("process %d of the VM: %s", v.PID(), v.answers.Text())
	}
	return tid
}

func (v *VM) order(words ...string) {
	v.t.Helper()
	if _, err := io.WriteString(v.orders, strings.Join(words, "\t")+"\n"); err != nil {
		v.t.Fatal(err)
	}
}

// PID of the process.
func (v *VM) PID() int { return v.cmd.Process.Pid }

// ID of the process.
func (v *VM) ID() host.TaskID { return v.main }

// Thread starts a thread that does nothing.
func (v *VM) Thread(name string) host.TaskID {
	v.t.Helper()
	v.order("thread", name, "")
	return v.id(v.answer())
}

// Spin starts a thread that never sleeps.
func (v *VM) Spin(name string) host.TaskID {
	v.t.Helper()
	v.order("spin", name, "")
	return v.id(v.answer())
}

// BoundThread starts a thread with an affinity: as if a thread that is bound to
// these CPUs had created it.
func (v *VM) BoundThread(name, cpus string) host.TaskID {
	v.t.Helper()
	v.order("thread", name, cpus)
	return v.id(v.answer())
}

// Vhost has the kernel make a vhost worker for the process. It takes module vhost_net.
func (v *VM) Vhost() {
	v.t.Helper()
	v.order("vhost")
	v.answer()
}

// EndThread ends a thread of this name. It does not wait.
func (v *VM) EndThread(name string) { v.order("end", name) }

// End ends the process and waits for it.
func (v *VM) End() {
	if v.cmd.ProcessState != nil {
		return
	}
	v.orders.Close()
	_ = v.cmd.Process.Kill() // it may have ended by itself
	_ = v.cmd.Wait()         // its status says that it was killed
}

func (v *VM) id(tid int) host.TaskID {
	v.t.Helper()
	path := filepath.Join("/proc", strconv.Itoa(v.PID()), "task", strconv.Itoa(tid), "stat")
	content, err := os.ReadFile(path)
	if err != nil {
		v.t.Fatal(err)
	}
	start, err := startOf(string(content))
	if err != nil {
		v.t.Fatal(err)
	}
	return host.TaskID{PID: v.PID(), TID: tid, Start: uint64(start)}
}
