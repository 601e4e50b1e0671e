//go:build e2e

package linux

import (
	"errors"
	"os"
	"testing"
)

// TestWrittenBytesOfARealProcess grow with what it writes to storage. Not in the gate: file systems
// that keep files in memory, or elsewhere, count nothing.
func TestWrittenBytesOfARealProcess(t *testing.T) {
	h := realHost(t)
	file, err := os.CreateTemp(".", "written-*.tmp")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(file.Close(), os.Remove(file.Name())) }()
	const written = 4 << 20
	before := h.writtenBytes(os.Getpid())
	if _, err := file.Write(make([]byte, written)); err != nil {
		t.Fatal(err)
	}
	after := h.writtenBytes(os.Getpid())
	if before == nil || after == nil || *after-*before < written {
		t.Errorf("%v before, %v after %d bytes", before, after, written)
	}
	if gone := h.writtenBytes(1 << 30); gone != nil {
		t.Errorf("%d bytes of no process", *gone)
	}
}
