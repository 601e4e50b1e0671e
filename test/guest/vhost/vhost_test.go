// Package vhost runs tests of threads on a kernel whose vhost workers are kernel
// threads, with cgroups of version 2, in a guest on emulated CPUs.
package vhost

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/test/guest"
	"github.com/joulevirt/joulevirt/test/guest/gobuild"
)

// script runs in the guest.
const script = `set -e
uname -r
test -c /dev/vhost-net
linux.test -test.v -test.run 'TestReal(Process|Threads|Affinity|Slice|Cgroup)|TestFacts'
affinity.test -test.v -test.run TestReal
slice.test -test.v -test.run TestReal
`

// module is this module's name.
const module = "github.com/joulevirt/joulevirt/"

func compile(t *testing.T, pkg, output string) {
	t.Helper()
	if err := gobuild.Tests(t.Context(), module+pkg, "vhost", output); err != nil {
		t.Fatal(err)
	}
}

func TestThreadsOnAKernelWithVhostWorkers(t *testing.T) {
	dir := t.TempDir()
	programs := map[string]string{}
	for name, pkg := range map[string]string{
		"linux.test": "internal/host/linux", "affinity.test": "internal/agent/actuate/affinity", "slice.test": "internal/agent/actuate/slice",
	} {
		programs[name] = filepath.Join(dir, name)
		compile(t, pkg, programs[name])
	}
	// It takes two minutes on two cores that others use too.
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	console, err := guest.Run(ctx, guest.Options{}, guest.Job{
		Programs: programs, Modules: []string{"tun", "vhost", "vhost_net"},
		Script: script, MemoryMiB: 256, CPUs: 2,
	})
	t.Log(console)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"--- PASS: TestRealVhostWorkersArePinnedAndUndone", "--- PASS: TestRealPinAndUndoInACpusetThatGrows", "--- PASS: TestRealCgroup",
	} {
		if !strings.Contains(console, want) {
			t.Errorf("the console does not show %q", want)
		}
	}
}
