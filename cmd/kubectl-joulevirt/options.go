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
		return nil, errors.New("there is no kubeconfig: name one with --kubeconfig or the variable KUBECONFIG, or a server with --server")
	}
	config, err := o.config.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w; name another with --kubeconfig, or a context of it with --context", err)
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

// warn prints what could not be read.
func (o *options) warn(gaps []show.Gap) {
	for _, gap := range gaps {
		fmt.Fprintf(o.streams.ErrOut, "warning: %s: %s\n", gap.Of, gap.Message)
	}
}

// output is how a command prints its result.
type output struct{ flags *genericclioptions.PrintFlags }

// formatWide is a format beside those of kubectl's printers.
const formatWide = "wide"

// addOutput adds flag -o.
func addOutput(command *cobra.Command) *output {
	flags := genericclioptions.NewPrintFlags("")
	flags.NamePrintFlags = nil
	flags.AddFlags(command)
	o := &output{flags: flags}
	command.Flags().Lookup("output").Usage = "Output format, one of: " + strings.Join(o.formats(), ", ") + "."
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(o.formats(), cobra.ShellCompDirectiveNoFileComp)) // fails only without the flag
	return o
}

func (o *output) formats() []string { return append([]string{formatWide}, o.flags.AllowedFormats()...) }

// print prints a view, and warns of what could not be read.
func (o *output) print(options *options, view show.View, gaps []show.Gap) error {
	options.warn(gaps)
	streams := options.streams
	if format := *o.flags.OutputFormat; format == "" || format == formatWide {
		tables, err := show.Tables(streams.Out, view, format == formatWide)
		if err == nil && tables == 0 {
			fmt.Fprintln(streams.ErrOut, "No resources found")
		}
		return err
	}
	printer, err := o.flags.ToPrinter()
	if err != nil {
		return fmt.Errorf("--output=%s must be one of %s", *o.flags.OutputFormat, strings.Join(o.formats(), ", "))
	}
	document, err := show.Document(view)
	if err != nil {
		return err
	}
	return printer.PrintObj(document, streams.Out)
}
