package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/joulevirt/joulevirt/internal/guesttools"
)

// execute runs a command with folders of the test's.
func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	command := newCommand()
	command.SetOut(&out)
	command.SetErr(&out)
	command.SetArgs(append(args, "--state-dir="+t.TempDir(), "--pin-dir="))
	err := command.ExecuteContext(t.Context())
	return out.String(), err
}

func TestMaxWindow(t *testing.T) {
	for window, wanted := range map[string]string{
		"124us": "must be 0 or from 125µs to 1ms", "1001us": "not 1.001ms", "-1us": "not -1µs", "fast": "invalid argument",
	} {
		if _, err := execute(t, "--max-window="+window); err == nil || !strings.Contains(err.Error(), wanted) {
			t.Errorf("--max-window=%s: %v, want %q", window, err, wanted)
		}
	}
	for _, window := range []string{"0", "125us", "300us", "1ms"} {
		o := defaultOptions()
		command := newCommand()
		o.addFlags(command.InheritedFlags())
		if err := command.InheritedFlags().Set("max-window", window); err != nil {
			t.Fatal(err)
		}
		if err := o.validate(); err != nil {
			t.Errorf("--max-window=%s: %v", window, err)
		}
	}
	if o := defaultOptions(); o.validate() != nil {
		t.Errorf("the defaults are refused: %v", o.validate())
	}
}

func TestStatusWithoutARun(t *testing.T) {
	out, err := execute(t, "status")
	if err != nil || !strings.Contains(out, "does not run") {
		t.Errorf("%q, %v", out, err)
	}
	out, err = execute(t, "status", "--json")
	var status guesttools.Status
	if err == nil {
		err = json.Unmarshal([]byte(out), &status)
	}
	if err != nil || status.Running {
		t.Errorf("%q, %v", out, err)
	}
}

func TestRestoreWithoutARun(t *testing.T) {
	if out, err := execute(t, "restore"); err != nil || !strings.Contains(out, "0 cards were changed") {
		t.Errorf("%q, %v", out, err)
	}
}
