// Package shaping runs the tests of shaping on a real kernel with fq, in a
// guest on an emulated CPU.
package shaping

import (
	"testing"

	"github.com/joulevirt/joulevirt/test/guest"
)

// script runs in the guest. The names of tests of devices that are shaped have Fq in them.
const script = `set -e
uname -r
datapath.test -test.v -test.run 'TestShaping'
linux.test -test.v -test.run 'TestFq|TestRealUplinks'
device.test -test.v -test.run 'TestRealVMsTakeTurns|TestRealCeiling|TestRealShapingAgentIsKilled|TestRealContested'
`

// Turns and ceilings on Debian's kernel: the program, devices, and VMs' traffic, also when the agent
// is killed.
func TestShapingOnAKernelWithFq(t *testing.T) {
	guest.RunTests(t, "fq", map[string]string{
		"datapath.test": "internal/datapath", "linux.test": "internal/host/linux", "device.test": "internal/agent/actuate/device",
	}, guest.Job{
		Modules: []string{"veth", "bridge", "tun", "sch_fq", "sch_ingress", "cls_bpf"},
		Script:  script, MemoryMiB: 384,
	}, "TestShapingDepartures", "TestFqShapeAndUnshape", "TestRealVMsTakeTurns", "TestRealCeiling",
		"TestRealShapingAgentIsKilledInAHold", "TestRealContested")
}
