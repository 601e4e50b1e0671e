//go:build e2e

package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestDemoFitsAScreen runs the demo, whose reader is to see all of it at a glance.
func TestDemoFitsAScreen(t *testing.T) {
	const mostLines, mostColumns = 100, 120
	var out bytes.Buffer
	if err := run(t.Context(), &out, false); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	lines := 0
	for line := range strings.Lines(out.String()) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "setup: ") {
			continue // what is built when: warm caches print little of it
		}
		lines++
		if columns := utf8.RuneCountInString(line); columns > mostColumns {
			t.Errorf("a line has %d columns, want %d at most: %s", columns, mostColumns, line)
		}
	}
	if lines > mostLines {
		t.Errorf("the demo prints %d lines, want %d at most:\n%s", lines, mostLines, out.String())
	}
}
