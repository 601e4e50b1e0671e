// Package buffering runs the tests of packet buffering on a real kernel with fq, in a guest
// on an emulated CPU.
package buffering

import (
	"testing"

	"github.com/joulevirt/joulevirt/test/guest"
)

// script runs in the guest: what is done to devices, by clsact, and the rules of the
// program that the verifier of this kernel has to take. The names of tests that need fq
// have it in them, or are those of buffered taps.
const script = `set -e
uname -r
datapath.test -test.v -test.run 'TestFq|TestProgram(IsVerified|KeepsOrder)$'
datapath.test -test.v -test.run '^Test(AttachAndRemove|Others.*|Clsact.*|ProgramsAreTakenOver)$'
linux.test -test.v -test.run 'Buffered|RealTap'
device.test -test.v -test.run 'TestRealAgent'
`

// Devices with fq and clsact, on Debian's kernel.
func TestBufferingOnAKernelWithFq(t *testing.T) {
	guest.RunTests(t, "fq", map[string]string{
		"datapath.test": "internal/datapath", "linux.test": "internal/host/linux", "device.test": "internal/agent/actuate/device",
	}, guest.Job{
		Modules: []string{"veth", "bridge", "tun", "sch_fq", "sch_htb", "sch_tbf", "sch_ingress", "cls_bpf"},
		Script:  script, MemoryMiB: 384,
	}, "TestFqHoldsOnTheGrid", "TestFqChangesUnderLoad", "TestBufferedTap", "TestRealAgentIsKilled")
}
