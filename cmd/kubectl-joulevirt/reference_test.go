package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"
)

const referencePage = "../../docs/reference/cli.md"

var update = flag.Bool("update", false, "write "+referencePage)

// TestReferenceIsCurrent holds the page of the commands to what they say of themselves.
func TestReferenceIsCurrent(t *testing.T) {
	command := newCommand(newOptions(genericiooptions.IOStreams{Out: io.Discard, ErrOut: io.Discard}, clock.RealClock{}))
	want := referenceOf(command)
	if *update {
		if err := os.WriteFile(referencePage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(referencePage)
	if err != nil {
		t.Fatalf("%v: run make reference", err)
	}
	if diff := cmp.Diff(string(got), want); diff != "" {
		t.Errorf("%s is not up to date: run make reference\n%s", referencePage, diff)
	}
}

// referenceOf is one page of a program's commands: what all share first.
func referenceOf(program *cobra.Command) string {
	var page strings.Builder
	page.WriteString("<!-- Generated from the commands by make reference. -->\n")
	fmt.Fprintf(&page, "# %s\n\n%s\n\nTables are for people; `-o json`, `yaml`, `jsonpath=` and `go-template=` are for programs ([design](../design/cli.md)).\n",
		program.CommandPath(), program.Long)
	for _, command := range program.Commands() {
		tellCommand(&page, command)
	}
	fmt.Fprintf(&page, "\n## Options of all commands\n\n```text\n%s```\n", program.PersistentFlags().FlagUsages())
	return page.String()
}

func tellCommand(page *strings.Builder, command *cobra.Command) {
	if !command.IsAvailableCommand() {
		return
	}
	about := command.Long
	if about == "" {
		about = command.Short + "."
	}
	fmt.Fprintf(page, "\n## %s\n\n%s\n", command.CommandPath(), about)
	if command.Runnable() && !command.HasSubCommands() {
		fmt.Fprintf(page, "\n```text\n%s\n```\n", strings.TrimSuffix(command.UseLine(), " [flags]"))
	}
	if len(command.Aliases) > 0 {
		fmt.Fprintf(page, "\nAlso `%s`.\n", strings.Join(command.Aliases, "`, `"))
	}
	if command.Example != "" {
		fmt.Fprintf(page, "\n```text\n%s\n```\n", command.Example)
	}
	if flags := command.NonInheritedFlags().FlagUsages(); flags != "" && !command.HasSubCommands() {
		fmt.Fprintf(page, "\n```text\n%s```\n", flags)
	}
	for _, sub := range command.Commands() {
		tellCommand(page, sub)
	}
}
