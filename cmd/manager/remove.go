package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/removal"
)

// removalPoll is how often it is checked whether levers are reverted.
const removalPoll = time.Second

// removeOptions are those of manager remove.
type removeOptions struct {
	options
	timeout     time.Duration
	keepObjects bool
}

func newRemoveCommand() *cobra.Command {
	o := &removeOptions{options: *defaultOptions(), timeout: 4 * time.Minute}
	command := &cobra.Command{
		Use:   "remove",
		Short: "Undo everything and remove what the manager made, before the product is uninstalled",
		Long: "Pause EnergyPolicies, wait until the agent of each node has confirmed that nothing is in force, delete policies and profiles, " +
			"then end the manager and remove what it made. Manager and agents run meanwhile. Running it again is harmless.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if o.namespace == "" {
				return errors.New("--namespace is required: the namespace that the manager runs in")
			}
			if o.timeout <= 0 {
				return fmt.Errorf("--timeout must be above zero, not %s", o.timeout)
			}
			return remove(command.Context(), o, command.OutOrStdout())
		},
	}
	flags := command.Flags()
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "Path of a kubeconfig. Empty: the pod's own account.")
	flags.StringVar(&o.namespace, "namespace", "", "Namespace that the manager runs in.")
	flags.DurationVar(&o.timeout, "timeout", o.timeout, "How long is waited for agents and manager.")
	flags.BoolVar(&o.keepObjects, "keep-objects", false, "Leave policies, which are paused, and profiles.")
	return command
}

func remove(ctx context.Context, o *removeOptions, out io.Writer) error {
	config, err := restConfig(&o.options)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme, virtv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("make a scheme: %w", err)
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("make a client of the API server: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	return removal.Run(ctx, c, removal.Options{
		Namespace: o.namespace, KeepObjects: o.keepObjects, Poll: removalPoll, Clock: clock.RealClock{},
		Report: func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) },
	})
}
