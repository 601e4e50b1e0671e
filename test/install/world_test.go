package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	"github.com/joulevirt/joulevirt/test/cluster/stack"
)

const (
	nodeName = "this-machine"
	shop     = "shop" // namespace of the VMs

	// changeTimeout covers a change's way through controllers, manager and agent.
	changeTimeout = 4 * time.Minute
)

// programs is the folder of the built manager and agent.
var programs string

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "install:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if programs, err = os.MkdirTemp("", "joulevirt-install"); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(programs)) }()
	for _, name := range []string{"manager", "agent"} {
		if _, err := stack.Build(context.Background(), name, programs); err != nil {
			return 1, err
		}
	}
	return m.Run(), nil
}

// world is a cluster whose only node is this machine, without the product.
type world struct {
	*testing.T
	*cluster.Cluster
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c, err := cluster.Start(t.Context(), cluster.Options{
		Binaries: source(), ControllerManager: true, KubeVirt: cluster.KubeVirtAPI,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := &world{T: t, Cluster: c}
	w.check(v1alpha1.AddToScheme(c.Client().Scheme()))
	w.check(c.AddNode(t.Context(), cluster.RealNode{Name: nodeName}))
	w.check(c.ApplyManifests(t.Context(), root+"/config/default/namespace.yaml"))
	w.eventually("Kubernetes has filled the namespace", func(ctx context.Context) error {
		for _, o := range []client.Object{&corev1.ServiceAccount{}, &corev1.ConfigMap{}} {
			key := client.ObjectKey{Namespace: namespace, Name: "default"}
			if _, is := o.(*corev1.ConfigMap); is {
				key.Name = "kube-root-ca.crt"
			}
			if err := c.Client().Get(ctx, key, o); err != nil {
				return err
			}
		}
		return nil
	})
	return w
}

// startKubelet runs the product's pods from now on.
func (w *world) startKubelet() {
	w.Helper()
	kubelet := stack.StartKubelet(w.Cluster, nodeName, programs)
	w.Cleanup(func() {
		if err := kubelet.Stop(); err != nil {
			w.Error(err)
		}
		for _, name := range []string{"manager", "agent", "removal"} {
			if text, err := os.ReadFile(filepath.Join(w.Dir(), name+".log")); err == nil && w.Failed() {
				w.Logf("the last of the log of %s:\n%s", name, text[max(0, len(text)-3000):])
			}
		}
	})
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

// reported waits for a report of this machine's agent.
func (w *world) reported() {
	w.Helper()
	w.eventually("the node's agent reports", func(ctx context.Context) error {
		var report v1alpha1.NodeReport
		if err := w.Client().Get(ctx, client.ObjectKey{Name: nodeName}, &report); err != nil {
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
	clients, err := discovery.NewDiscoveryClientForConfig(w.RESTConfig())
	w.check(err)
	lists, err := clients.ServerPreferredResources()
	w.check(err)
	config := rest.CopyConfig(w.RESTConfig())
	config.WarningHandler = rest.NoWarnings{} // deprecated kinds are listed too
	reader, err := dynamic.NewForConfig(config)
	w.check(err)
	var all []string
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		w.check(err)
		for _, kind := range list.APIResources {
			if kind.Name == "events" || !slices.Contains(kind.Verbs, "list") {
				continue
			}
			found, err := reader.Resource(version.WithResource(kind.Name)).List(w.Context(), metav1.ListOptions{})
			if apierrors.IsNotFound(err) {
				continue // a kind that is being deleted
			}
			w.check(err)
			for _, o := range found.Items {
				all = append(all, strings.Join([]string{kind.Name, version.Group, o.GetNamespace(), o.GetName()}, "/"))
			}
		}
	}
	slices.Sort(all)
	return all
}

// nothingLeft waits until no object exists that did not before, except those whose name begins
// with one of the exceptions. The namespace, with what Kubernetes puts there, may be gone.
func (w *world) nothingLeft(before []string, except ...string) {
	w.Helper()
	w.eventually("nothing is left", func(context.Context) error {
		left := slices.DeleteFunc(w.everything(), func(o string) bool {
			return slices.Contains(before, o) || slices.ContainsFunc(except, func(prefix string) bool { return strings.HasPrefix(o, prefix) })
		})
		if len(left) > 0 {
			return fmt.Errorf("left: %v", left)
		}
		return nil
	})
}
