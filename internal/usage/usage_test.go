package usage

import (
	"testing"
	"time"
)

// Time in which this process is busy counts.
func TestCPUTime(t *testing.T) {
	before := CPUTime()
	if before <= 0 {
		t.Fatalf("%v at the start", before)
	}
	const enough = 50 * time.Millisecond
	for deadline := time.Now().Add(time.Minute); CPUTime()-before < enough; {
		if time.Now().After(deadline) {
			t.Fatalf("%v in a minute of work", CPUTime()-before)
		}
	}
}
