package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
)

const soon = 2 * time.Minute

// TestRun runs the manager as it is shipped, on a cluster that has no KubeVirt
// at first.
func TestRun(t *testing.T) {
	c := startCluster(t)
	_, kubeconfig, err := c.ServiceAccountConfig(t.Context(), "joulevirt-system", "joulevirt-manager", "")
	if err != nil {
		t.Fatal(err)
	}
	o := defaultOptions()
	o.kubeconfig, o.namespace = kubeconfig, "joulevirt-system"
	o.healthAddress, o.metricsAddress = address(t, c), address(t, c)
	if err := o.validate(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, o)
		if ctx.Err() == nil {
			t.Errorf("the manager ended: %v", err)
		}
		ended <- err
	}()

	wait(t, c, "alive", status("http://"+o.healthAddress+"/healthz", http.StatusOK))
	wait(t, c, "not ready without KubeVirt", status("http://"+o.healthAddress+"/readyz", http.StatusServiceUnavailable))
	wait(t, c, "metrics ask who calls", status("https://"+o.metricsAddress+"/metrics", http.StatusUnauthorized))
	wait(t, c, "the page asks who calls", status("https://"+o.metricsAddress+"/page/data/summary", http.StatusUnauthorized))
	wait(t, c, "the Lease is held", func(ctx context.Context) error { return leaseHeld(ctx, c, true) })
	if err := installVMIs(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	wait(t, c, "ready with KubeVirt", status("http://"+o.healthAddress+"/readyz", http.StatusOK))
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	wait(t, c, "the Lease is given back", func(ctx context.Context) error { return leaseHeld(ctx, c, false) })
}

func startCluster(t *testing.T) *cluster.Cluster {
	t.Helper()
	c, err := cluster.Start(t.Context(), cluster.Options{Binaries: binaries.FromEnvironment(os.Getenv, os.Stderr)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, path := range []string{"../../config/default/namespace.yaml", "../../config/crd", "../../config/rbac"} {
		if err := c.ApplyManifests(t.Context(), path); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// address is one that nobody else takes before the manager does, nor a connection.
func address(t *testing.T, c *cluster.Cluster) string {
	t.Helper()
	port, err := c.TakePort()
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

func wait(t *testing.T, c *cluster.Cluster, what string, condition func(context.Context) error) {
	t.Helper()
	if err := c.WaitFor(t.Context(), soon, what, condition); err != nil {
		t.Fatal(err)
	}
}

func status(url string, want int) func(context.Context) error {
	// The metrics' certificate is self-signed: what is tested is who may read.
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		answer, err := web.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }()
		if answer.StatusCode != want {
			body, _ := io.ReadAll(answer.Body)
			return fmt.Errorf("%s answers %s: %s", url, answer.Status, body)
		}
		return nil
	}
}

func leaseHeld(ctx context.Context, c *cluster.Cluster, want bool) error {
	lease := &coordinationv1.Lease{}
	if err := c.Client().Get(ctx, types.NamespacedName{Namespace: "joulevirt-system", Name: "joulevirt-manager"}, lease); err != nil {
		return err
	}
	if held := ptr.Deref(lease.Spec.HolderIdentity, "") != ""; held != want {
		return fmt.Errorf("it is held: %t", held)
	}
	return nil
}

// installVMIs installs as much of KubeVirt as the manager looks for.
func installVMIs(ctx context.Context, c *cluster.Cluster) error {
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return err
	}
	installer, err := client.New(c.RESTConfig(), client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	return installer.Create(ctx, &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "virtualmachineinstances.kubevirt.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "kubevirt.io", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: "virtualmachineinstances", Kind: "VirtualMachineInstance", ListKind: "VirtualMachineInstanceList", Singular: "virtualmachineinstance",
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: ptr.To(true),
				}},
			}},
		},
	})
}

func TestValidate(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*options)
		want   error
	}{
		"defaults with a namespace": {change: func(*options) {}},
		"no namespace":              {change: func(o *options) { o.namespace = "" }, want: errAny},
		"no interval":               {change: func(o *options) { o.pull.Interval = 0 }, want: errAny},
		"stale at once":             {change: func(o *options) { o.pull.StaleAfter = o.pull.Interval }, want: errAny},
	} {
		o := defaultOptions()
		o.namespace = "joulevirt-system"
		tc.change(o)
		if err := o.validate(); (err != nil) != (tc.want != nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// errAny stands for whichever error.
var errAny = errors.New("any")
