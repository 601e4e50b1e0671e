package simulated

import (
	"flag"
	"os"
	"runtime/debug"
	"testing"
)

// figures has tests measure figures of docs/benchmarks.md, with larger fleets: make bench.
var figures = flag.Bool("figures", false, "measure with the sizes of docs/benchmarks.md")

// TestMain lets garbage wait: what lives here is small, so that it would be collected all
// the time.
func TestMain(m *testing.M) {
	const percent = 800
	debug.SetGCPercent(percent)
	flag.Parse()
	os.Exit(m.Run())
}
