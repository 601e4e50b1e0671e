package datapath

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

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

// What it costs to load the programs of one device, in time of this process's CPU: the
// verifier's for the most part.
func BenchmarkLoad(b *testing.B) {
	lease, err := NewLease()
	must(b, err)
	defer func() { must(b, lease.Close()) }()
	before := cpuTime(b)
	for b.Loop() {
		p, err := Load(lease)
		must(b, err)
		must(b, p.Close())
	}
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
}

func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var usage unix.Rusage
	must(t, unix.Getrusage(unix.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
