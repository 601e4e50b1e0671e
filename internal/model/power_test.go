package model

import (
	"strings"
	"testing"
)

func TestIsWord(t *testing.T) {
	for text, want := range map[string]bool{
		"RAPL": true, "NoSeries": true, "x": true, strings.Repeat("A", 64): true,
		"": false, "two words": false, "A1A": false, "Ä": false, "A\nB": false, strings.Repeat("A", 65): false,
	} {
		if got := IsWord(text); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}
