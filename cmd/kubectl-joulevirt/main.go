// Command kubectl-joulevirt is a plug-in of kubectl: it shows what Joulevirt observes, decides
// and saves, and approves, pauses and resumes.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubeconfigs name their providers
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/joulevirt/joulevirt/internal/version"
)

// completer is the name by which kubectl runs a plug-in for completions. A link of that name to
// this program is enough.
const completer = "kubectl_complete-joulevirt"

func main() {
	log.SetLogger(logr.Discard()) // errors are enough
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	command := newCommand(newOptions(streams, clock.RealClock{}))
	command.SetArgs(argsOf(os.Args))
	err := command.ExecuteContext(ctx)
	stop()
	os.Exit(exitCode(streams, err))
}

// argsOf are the arguments of a call, which may be one for completions.
func argsOf(call []string) []string {
	if filepath.Base(call[0]) == completer {
		return append([]string{cobra.ShellCompRequestCmd}, call[1:]...)
	}
	return call[1:]
}

// Exit codes.
const (
	exitFailed  = 1
	exitUnknown = 2
)

// exit ends the program with a code and without a message.
type exit int

// Error names the code.
func (e exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func exitCode(streams genericiooptions.IOStreams, err error) int {
	var code exit
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintln(streams.ErrOut, "error:", strings.TrimPrefix(err.Error(), "error: "))
	return exitFailed
}

func newCommand(o *options) *cobra.Command {
	command := &cobra.Command{
		Use:   "kubectl-joulevirt",
		Short: "Energy of VMs' network traffic: what it is, what lowers it, and why",
		Long: "Energy of VMs' network traffic: what it is, what lowers it, and why.\n\n" +
			"Exit codes: 0 done, or all well; 1 failed, or problems were found; 2 doctor could not check everything.",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl joulevirt"},
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version.String(),
		Args:          cobra.NoArgs,
		RunE:          showHelp,
	}
	command.SetOut(o.streams.Out)
	command.SetErr(o.streams.ErrOut)
	o.config.AddFlags(command.PersistentFlags())
	command.AddCommand(
		newInitCommand(o), newDoctorCommand(o), newTopCommand(o), newExplainCommand(o), newPlanCommand(o), newFindingsCommand(o), newSavingsCommand(o),
		newApproveCommand(o), newPauseCommand(o, true), newPauseCommand(o, false), newPageCommand(o), newVersionCommand(o),
	)
	return command
}

// showHelp is for commands that only group others. With Args NoArgs they refuse unknown names.
func showHelp(command *cobra.Command, _ []string) error { return command.Help() }

// defaultTimeout of a request, unless --request-timeout says otherwise.
const defaultTimeout = 30 * time.Second
