package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"
)

const referencePage = "../../docs/reference/cli.md"

var update = flag.Bool("update", false, "write "+referencePage)

// TestReferenceIsCurrent compares the page of the commands with their help.
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
	fmt.Fprintf(&page, "# %s\n\n%s\n\nTables are for people; `-o json`, `yaml`, `jsonpath=` and `go-template=` are for programs. Commands with `-o` also take the flags of kubectl's printers, such as `--template`.\n",
		program.CommandPath(), program.Long)
	for _, command := range program.Commands() {
		writeCommand(&page, command)
	}
	fmt.Fprintf(&page, "\n## Options of all commands\n\n```text\n%s```\n", program.PersistentFlags().FlagUsages())
	return page.String()
}

func writeCommand(page *strings.Builder, command *cobra.Command) {
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
	if flags := ownFlags(command).FlagUsages(); flags != "" && !command.HasSubCommands() {
		fmt.Fprintf(page, "\n```text\n%s```\n", flags)
	}
	for _, sub := range command.Commands() {
		writeCommand(page, sub)
	}
}

// ownFlags returns the flags of a command without those of kubectl's printers, which the page
// names once.
func ownFlags(command *cobra.Command) *pflag.FlagSet {
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	command.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		if !slices.Contains([]string{"allow-missing-template-keys", "show-managed-fields", "template"}, f.Name) {
			own.AddFlag(f)
		}
	})
	return own
}
