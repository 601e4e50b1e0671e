package hosttest

import (
	"testing"
	"time"
)

const (
	patience = 20 * time.Second
	interval = 5 * time.Millisecond
)

// Eventually waits until a condition holds, and fails the test when it does
// not in time.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(interval) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}
