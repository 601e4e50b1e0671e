package simulated

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain lets garbage wait: what lives here is small, so that it would be collected all
// the time.
func TestMain(m *testing.M) {
	const percent = 800
	debug.SetGCPercent(percent)
	os.Exit(m.Run())
}
