package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/cli/access"
	"github.com/joulevirt/joulevirt/internal/cli/show"
)

// options are what all commands share.
type options struct {
	streams genericiooptions.IOStreams
	clock   clock.PassiveClock
	config  *genericclioptions.ConfigFlags
}

func newOptions(streams genericiooptions.IOStreams, clock clock.PassiveClock) *options {
	config := genericclioptions.NewConfigFlags(true)
	config.CacheDir = nil // nothing is cached
	return &options{streams: streams, clock: clock, config: config}
}

// cluster gives access by the kubeconfig.
func (o *options) cluster() (*access.Cluster, error) {
	raw, err := o.config.ToRawKubeConfigLoader().RawConfig()
	if err == nil && api.IsConfigEmpty(&raw) && *o.config.APIServer == "" {
		return nil, errors.New("there is no kubeconfig: name one by --kubeconfig or the variable KUBECONFIG, or a server by --server")
	}
	config, err := o.config.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w; name another by --kubeconfig, or a context of it by --context", err)
	}
	if config.Timeout == 0 {
		config.Timeout = defaultTimeout
	}
	return access.New(config)
}

// namespace is that of the flags, or of the kubeconfig's context.
func (o *options) namespace() (string, error) {
	namespace, _, err := o.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("read the kubeconfig: %w", err)
	}
	return namespace, nil
}

// warn tells of what could not be read.
func (o *options) warn(gaps []show.Gap) {
	for _, gap := range gaps {
		fmt.Fprintf(o.streams.ErrOut, "warning: %s: %s\n", gap.Of, gap.Message)
	}
}

// output is how a command prints what it found.
type output struct {
	flags *genericclioptions.PrintFlags
	names bool
}

// Formats beside those of kubectl's printers.
const (
	formatWide = "wide"
	formatName = "name"
)

// addOutput adds flag -o. names says that the command is about objects that have names.
func addOutput(command *cobra.Command, names bool) *output {
	flags := genericclioptions.NewPrintFlags("")
	flags.NamePrintFlags = nil
	flags.AddFlags(command)
	o := &output{flags: flags, names: names}
	formats := o.formats()
	command.Flags().Lookup("output").Usage = "Output format, one of: " + strings.Join(formats, ", ") + "."
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // fails only without the flag
	return o
}

func (o *output) formats() []string {
	formats := []string{formatWide}
	if o.names {
		formats = append(formats, formatName)
	}
	return append(formats, o.flags.AllowedFormats()...)
}

// isDetailed tells whether all is shown that is known.
func (o *output) isDetailed() bool {
	return *o.flags.OutputFormat != "" && *o.flags.OutputFormat != formatName
}

// print shows a view.
func (o *output) print(streams genericiooptions.IOStreams, view show.View) error {
	switch format := *o.flags.OutputFormat; {
	case format == "" || format == formatWide:
		return show.Tables(streams.Out, view, format == formatWide)
	case format == formatName && o.names:
		for _, name := range view.Names() {
			fmt.Fprintln(streams.Out, name)
		}
		return nil
	}
	printer, err := o.flags.ToPrinter()
	if err != nil {
		return fmt.Errorf("--output=%s is none of %s", *o.flags.OutputFormat, strings.Join(o.formats(), ", "))
	}
	document, err := show.Document(view)
	if err != nil {
		return err
	}
	return printer.PrintObj(document, streams.Out)
}
