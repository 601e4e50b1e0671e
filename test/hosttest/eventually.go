package hosttest

import (
	"testing"
	"time"
)

// Patience is how long a test waits for anything: some hundred times what it takes
// on an idle machine.
const Patience = 5 * time.Minute

const interval = 5 * time.Millisecond

// Eventually waits until a condition holds, and fails the test when it does
// not in time.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	late := time.After(Patience)
	for !holds() {
		select {
		case <-late:
			t.Fatalf("waited %v for %s", Patience, what)
		case <-time.After(interval):
		}
	}
}
