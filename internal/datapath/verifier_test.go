package datapath

import (
	"testing"

	"github.com/cilium/ebpf"

	"github.com/joulevirt/joulevirt/internal/datapath/bpf"
)

// Kernels verify no more than a million instructions; far fewer are taken as a sign that
// older verifiers, which remember less, manage too.
func TestProgramIsVerified(t *testing.T) {
	spec, err := bpf.LoadJv()
	if err != nil {
		t.Fatal(err)
	}
	made, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer made.Close()
	for name, p := range made.Programs {
		info, err := p.Info()
		if err != nil {
			t.Fatal(err)
		}
		n, ok := info.VerifiedInstructions()
		t.Logf("%s: %d instructions verified", name, n)
		if ok && n > 250_000 {
			t.Errorf("%s took %d instructions to verify: simplify it", name, n)
		}
	}
}
