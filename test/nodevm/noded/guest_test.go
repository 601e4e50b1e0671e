package main

import "testing"

func TestCPUModel(t *testing.T) {
	for name, c := range map[string]struct{ cpuinfo, want string }{
		"a clock at a tenth":      {"processor\t: 0\ncpu MHz\t\t: 26999.900\n", "max"},
		"just too fast":           {"cpu MHz\t\t: 34359.739\n", "max,-tsc-deadline"},
		"a clock at a twentieth":  {"cpu MHz\t\t: 54000.000\n", "max,-tsc-deadline"},
		"a processor that is mum": {"processor\t: 0\n", "max,-tsc-deadline"},
	} {
		if got := cpuModel(c.cpuinfo); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
