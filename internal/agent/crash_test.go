package agent

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/units"
)

func (b *bench) write(name string, content []byte) {
	b.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), content, 0o600); err != nil {
		b.Fatal(err)
	}
}

// crash ends an agent so that the node and the disk are as after kill -9: what
// it put back in order is undone.
func (b *bench) crash(stop func()) {
	b.Helper()
	path := filepath.Join(b.dir, "journal.json")
	content, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	stop()
	b.write("journal.json", content)
	mask := unix.NewCPUSet(units.MaxCPUs)
	for _, cpu := range b.one.CPUs() {
		mask.Set(cpu)
	}
	if err := unix.SchedSetaffinityDynamic(b.vcpu.TID, mask); err != nil {
		b.Fatal(err)
	}
}
