//go:build !race

// The race detector takes memory, and has buffers made anew that are in a pool.

package rates

import (
	"errors"
	"runtime"
	"strings"
	"testing"
)

// TestDecodeMemory: no answer costs more than a few times its size, garbage included.
func TestDecodeMemory(t *testing.T) {
	const most = 64 << 20
	for name, body := range inflated() {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		read, err := readBody(strings.NewReader(body), &usualBody{})
		if err == nil {
			_, err = decode(read, "n")
		}
		runtime.ReadMemStats(&after)
		if cost := after.TotalAlloc - before.TotalAlloc; cost > most || !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %d bytes cost %d of memory; error %v", name, len(body), cost, err)
		}
	}
	if _, err := readBody(strings.NewReader(strings.Repeat(" ", maxBody+1)), &usualBody{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("an answer that is too long: %v", err)
	}
}
