//go:build e2e

// Package vhost runs tests of threads on a kernel whose vhost workers are kernel
// threads, with cgroups of version 2, in a guest on emulated CPUs.
package vhost

import (
	"testing"

	"github.com/joulevirt/joulevirt/test/guest"
)

// script runs in the guest.
const script = `set -e
uname -r
test -c /dev/vhost-net
linux.test -test.v -test.run 'TestReal(Process|Threads|Affinity|Slice|Cgroup)|TestFacts'
thread.test -test.v -test.run TestReal
`

func TestThreadsOnAKernelWithVhostWorkers(t *testing.T) {
	guest.RunTests(t, "vhost", map[string]string{
		"linux.test": "internal/host/linux", "thread.test": "internal/agent/actuate/thread",
	}, guest.Job{
		Modules: []string{"tun", "vhost", "vhost_net"}, Script: script, MemoryMiB: 256, CPUs: 2,
	}, "TestRealVhostWorkersArePinnedAndUndone", "TestRealPinAndUndoInACpusetThatGrows", "TestRealCgroup")
}
