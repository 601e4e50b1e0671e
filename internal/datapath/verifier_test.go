package datapath

import (
	"testing"

	"github.com/cilium/ebpf"

	"github.com/joulevirt/joulevirt/internal/datapath/bpf"
)

// Each tap has programs of its own, so the kernel verifies them often. It refuses those of
// more than a million instructions; few are a sign too that verifiers which remember less
// manage.
func TestProgramIsVerified(t *testing.T) {
	const mostVerified = 10_000
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
		if ok && n > mostVerified {
			t.Errorf("%s took %d instructions to verify: simplify it", name, n)
		}
	}
}
