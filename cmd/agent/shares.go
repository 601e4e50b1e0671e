package main

import (
	"errors"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/shares"
	"github.com/joulevirt/joulevirt/internal/kube"
)

// newSharesCommand is a DaemonSet of its own: it takes a privilege that the agent does not have.
func newSharesCommand(logs *zap.Options) *cobra.Command {
	var kubeconfig string
	o := shares.Options{Root: v1alpha1.ShareRoot}
	command := &cobra.Command{
		Use:   "mount-shares",
		Short: "Mount the shares of a node's VMs, for HybridWorkloads with path SharedMemory",
		Long: "Mount a file system in memory for each PersistentVolume with label " + v1alpha1.LabelShare + "=true that names this node, " +
			"and unmount those whose volume is gone. What is mounted stays when the program ends.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if o.Node == "" {
				return errors.New("--node-name is required: the name of the Node whose shares are mounted")
			}
			o.Log = zap.New(zap.UseFlagOptions(logs)).WithValues("node", o.Node)
			klog.SetLogger(o.Log) // of client-go
			config, err := restConfig(kubeconfig)
			if err != nil {
				return err
			}
			client, err := kube.NewClient(config)
			if err != nil {
				return err
			}
			return shares.Run(command.Context(), client, o)
		},
	}
	flags := command.Flags()
	flags.StringVar(&o.Node, "node-name", "", "Name of the Node.")
	flags.StringVar(&kubeconfig, "kubeconfig", "", "Path of a kubeconfig. Empty: the pod's own account.")
	return command
}
