package main

import (
	"io"
	"strings"
	"testing"
)

func TestBadFlags(t *testing.T) {
	for args, want := range map[string]string{
		"":                                      "--upstream",
		"--upstream=vm.example:80":              "IP address",
		"--upstream=1.2.3.4:5 more":             `unknown command "more"`,
		"--upstream=1.2.3.4:5 --x=1":            "unknown flag: --x",
		"--memory-max=1Gi":                      "--memory-max",
		"--target-response-time=often":          "--target-response-time",
		"--upstream=[fd00::1]:80 --store=/proc": "--store",
		"evict":                                 "--share",
		"evict --share=/ --idle-eviction=1ms":   "--idle-eviction",
	} {
		command := newCommand()
		command.SetArgs(strings.Fields(args))
		command.SetOut(io.Discard)
		command.SetErr(io.Discard)
		if err := command.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
