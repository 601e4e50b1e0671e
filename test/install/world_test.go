//go:build e2e

package install

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/env/node"
)

const (
	shop = "shop" // namespace of the VMs

	// changeTimeout covers a change's way through controllers, manager and agent on a busy machine.
	changeTimeout = 8 * time.Minute
)

// world is what a test sees of the cluster.
type world struct {
	*testing.T
	*node.Environment
	node *node.Node
}

// newWorld starts a cluster with one real node and two VMs, without the product.
func newWorld(t *testing.T) *world {
	t.Helper()
	log.SetLogger(logr.Discard()) // the cluster's helpers would tell of every retry
	e := node.StartForTest(t, node.Options{Cluster: cluster.Options{Binaries: source()}, Product: true})
	w := &world{T: t, Environment: e, node: e.Nodes()[0]}
	w.check(v1alpha1.AddToScheme(w.Client().Scheme()))
	w.startVMs()
	w.check(w.ApplyManifests(t.Context(), root+"/config/default/namespace.yaml"))
	w.eventually("Kubernetes has filled the namespace", func(ctx context.Context) error {
		for _, o := range []client.Object{&corev1.ServiceAccount{}, &corev1.ConfigMap{}} {
			key := client.ObjectKey{Namespace: namespace, Name: "default"}
			if _, is := o.(*corev1.ConfigMap); is {
				key.Name = "kube-root-ca.crt"
			}
			if err := w.Client().Get(ctx, key, o); err != nil {
				return err
			}
		}
		return nil
	})
	return w
}

func (w *world) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) eventually(what string, condition func(context.Context) error) {
	w.Helper()
	w.check(w.WaitFor(w.Context(), changeTimeout, what, condition))
}

// reported waits for a report of the node's agent.
func (w *world) reported() {
	w.Helper()
	w.eventually("the node's agent reports", func(ctx context.Context) error {
		var report v1alpha1.NodeReport
		if err := w.Client().Get(ctx, client.ObjectKey{Name: w.node.Name}, &report); err != nil {
			return err
		}
		if report.Status.ReportedAt == nil {
			return fmt.Errorf("its status is empty")
		}
		return nil
	})
}

// everything lists the objects of all kinds, but Events, which come and go by themselves.
func (w *world) everything() []string {
	w.Helper()
	all, err := w.list(w.Context())
	w.check(err)
	return all
}

// list is everything, or why it cannot be listed now: kinds may be about to go.
func (w *world) list(ctx context.Context) ([]string, error) {
	clients, err := discovery.NewDiscoveryClientForConfig(w.RESTConfig())
	if err != nil {
		return nil, err
	}
	lists, err := clients.ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	config := rest.CopyConfig(w.RESTConfig())
	config.WarningHandler = rest.NoWarnings{} // deprecated kinds are listed too
	reader, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, kind := range list.APIResources {
			if kind.Name == "events" || !slices.Contains(kind.Verbs, "list") {
				continue
			}
			found, err := reader.Resource(version.WithResource(kind.Name)).List(ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) {
				continue // a kind that is being deleted
			}
			if err != nil {
				return nil, fmt.Errorf("list %s of %s: %w", kind.Name, list.GroupVersion, err)
			}
			for _, o := range found.Items {
				all = append(all, strings.Join([]string{kind.Name, version.Group, o.GetNamespace(), o.GetName()}, "/"))
			}
		}
	}
	slices.Sort(all)
	return all, nil
}

// nothingLeft waits until no object exists that did not before, except those whose name begins
// with one of the exceptions. The namespace, with what Kubernetes puts there, may be gone.
func (w *world) nothingLeft(before []string, except ...string) {
	w.Helper()
	w.eventually("nothing is left", func(ctx context.Context) error {
		all, err := w.list(ctx)
		if err != nil {
			return err
		}
		left := slices.DeleteFunc(all, func(o string) bool {
			return slices.Contains(before, o) || slices.ContainsFunc(except, func(prefix string) bool { return strings.HasPrefix(o, prefix) })
		})
		if len(left) > 0 {
			return fmt.Errorf("left: %v", left)
		}
		return nil
	})
}
