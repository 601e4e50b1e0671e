package main

import (
	"errors"
	"os"
	"testing"

	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host/linux"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/hosttest"
)

// A journal of an earlier boot names threads by numbers, and even start times, that are
// others' now: what these have is theirs.
func TestRestoreAfterAReboot(t *testing.T) {
	one, other := hosttest.TwoCPUs(t)
	pod := hosttest.NewPod(t, one.Union(other).String())
	vm := hosttest.StartVM(t, "shop", "web")
	pod.Add(vm)
	vcpu := vm.BoundThread("CPU 0/TCG", one.String())
	h, err := linux.New(linux.Options{ProcRoot: "/proc", SysRoot: "/sys"})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	facts, err := h.Facts()
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		boot string
		want units.CPUSet
	}{
		{"11111111-2222-3333-4444-555555555555", one},
		{facts.BootID, one.Union(other)},
	} {
		dir := t.TempDir()
		j, err := journal.Open(dir, step.boot)
		if err != nil {
			t.Fatal(err)
		}
		err = j.SaveThreads([]journal.Entry{{PodUID: pod.UID, Process: vm.ID(), Thread: vcpu, Ours: one, Since: vcpu.Start}})
		if err := errors.Join(err, j.Close()); err != nil {
			t.Fatal(err)
		}
		restorer := startAgent(t, "restore", "--state-dir="+dir)
		if err := restorer.cmd.Wait(); err != nil {
			t.Errorf("agent restore: %v", err)
		}
		if got, err := h.Affinity(vcpu); err != nil || !got.Equal(step.want) {
			t.Errorf("with a journal of boot %s the thread may run on %v, %v; want %v", step.boot, got, err, step.want)
		}
	}
}

// A pod of a DaemonSet must not end. It keeps no agent from the node that comes later.
func TestRestoreStays(t *testing.T) {
	dir := t.TempDir()
	stays := startAgent(t, "restore", "--stay", "--state-dir="+dir)
	hosttest.Eventually(t, "the restorer has opened the journal", func() bool {
		entries, err := os.ReadDir(dir)
		return err == nil && len(entries) > 0
	})
	hosttest.Eventually(t, "another may take the node over", func() bool {
		return startAgent(t, "restore", "--state-dir="+dir).cmd.Wait() == nil
	})
	stays.terminate()
}
