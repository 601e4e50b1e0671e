//go:build e2e

// Package fq runs the tests of buffering and shaping on a real kernel with fq, in a guest on an
// emulated CPU.
package fq

import (
	"testing"

	"github.com/joulevirt/joulevirt/test/guest"
)

// script runs in the guest: what is done to devices, by clsact, the rules of the programs that the
// verifier of this kernel has to take, and VMs' traffic. The names of tests that need fq have it in
// them, or are those of devices that are buffered or shaped.
const script = `set -e
uname -r
datapath.test -test.v -test.run 'TestFq|TestProgram(IsVerified|KeepsOrder)$|TestShaping'
datapath.test -test.v -test.run '^Test(AttachAndRemove|Others.*|Clsact.*|ProgramsAreTakenOver)$'
linux.test -test.v -test.run 'Buffered|RealTap|TestFq|TestRealUplinks'
device.test -test.v -test.run 'TestRealAgent|TestRealVMsTakeTurns|TestRealCeiling|TestRealShapingAgentIsKilled|TestRealContested'
`

// Devices with fq and clsact, on Debian's kernel, also when the agent is killed.
func TestKernelWithFq(t *testing.T) {
	guest.RunTests(t, "fq", map[string]string{
		"datapath.test": "internal/datapath", "linux.test": "internal/host/linux", "device.test": "internal/agent/actuate/device",
	}, guest.Job{
		Modules: []string{"veth", "bridge", "tun", "sch_fq", "sch_htb", "sch_tbf", "sch_ingress", "cls_bpf"},
		Script:  script, MemoryMiB: 384,
	}, "TestFqHoldsOnTheGrid", "TestFqChangesUnderLoad", "TestBufferedTap", "TestRealAgentIsKilled",
		"TestShapingDepartures", "TestFqShapeAndUnshape", "TestRealVMsTakeTurns", "TestRealCeiling",
		"TestRealShapingAgentIsKilledInAHold", "TestRealContested")
}
