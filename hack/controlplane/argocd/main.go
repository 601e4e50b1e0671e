// Command argocd-sync applies an object to a cluster as Argo CD does, by its library, or prints what Argo
// CD finds changed. The cluster is that of KUBECONFIG.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/argoproj/argo-cd/gitops-engine/pkg/diff"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/utils/kube"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/utils/tracing"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"sigs.k8s.io/yaml"
)

// manager is the field manager that Argo CD applies with.
const manager = "argocd-controller"

func main() {
	serverSide := flag.Bool("server-side", false, "apply with the sync option ServerSideApply=true")
	how := flag.String("diff", "", "print the differences instead: client (the default of Argo CD), structured (its default with ServerSideApply=true) or server (ServerSideDiff=true)")
	flag.Parse()
	if err := run(context.Background(), flag.Arg(0), *how, *serverSide); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, file, how string, serverSide bool) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, object); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	cluster := &kube.KubectlCmd{Log: logr.Discard(), Tracer: tracing.NopTracer{}}
	if how != "" {
		return printDifferences(ctx, cluster, config, object, how)
	}
	operations, done, err := cluster.ManageResources(config)
	if err != nil {
		return err
	}
	defer done()
	_, err = operations.ApplyResource(ctx, object, cmdutil.DryRunNone, false, true, serverSide, manager)
	return err
}

// printDifferences prints the object as it is and as Argo CD would have it, if these differ.
func printDifferences(ctx context.Context, cluster *kube.KubectlCmd, config *rest.Config, object *unstructured.Unstructured, how string) error {
	live, err := cluster.GetResource(ctx, config, object.GroupVersionKind(), object.GetName(), object.GetNamespace())
	if err != nil {
		return err
	}
	_, parser, err := cluster.LoadOpenAPISchema(config)
	if err != nil {
		return err
	}
	dryRuns, done, err := cluster.ManageServerSideDiffDryRuns(config)
	if err != nil {
		return err
	}
	defer done()
	options := []diff.Option{diff.WithLogr(logr.Discard()), diff.WithManager(manager), diff.WithGVKParser(parser)}
	switch how {
	case "client":
	case "structured":
		options = append(options, diff.WithStructuredMergeDiff(true))
	case "server":
		options = append(options, diff.WithServerSideDiff(true), diff.WithServerSideDryRunner(diff.NewK8sServerSideDryRunner(dryRuns)))
	default:
		return errors.New("--diff: want client, structured or server")
	}
	result, err := diff.Diff(object, live, options...)
	if err == nil && result.Modified {
		fmt.Printf("is %s\nwants %s\n", result.NormalizedLive, result.PredictedLive)
	}
	return err
}
