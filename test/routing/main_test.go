// Package routing tests the writers of traffic shares against a real API server
// and Kubernetes' own controllers, which make endpoints of pods.
package routing

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/dataplane/gatewaycrds"
)

const (
	// startTimeout includes a cold build of the control planes.
	startTimeout = 20 * time.Minute
	// mutation has the policies by which the API server extends selectors.
	mutation = "../../config/mutation"
	// nodeName is the only node.
	nodeName = "node"
	// soon is some hundred times what Kubernetes' controllers take on an idle machine.
	soon = 2 * time.Minute
)

// suite is what all tests of the package share. Each has its own namespace.
var suite struct {
	cluster *cluster.Cluster
	client  client.WithWatch
}

func TestMain(m *testing.M) { os.Exit(runSuite(m)) }

func runSuite(m *testing.M) (code int) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	fail := func(what string, err error) int {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		return 1
	}
	var err error
	suite.cluster, err = cluster.Start(ctx, cluster.Options{
		Binaries:          binaries.FromEnvironment(os.Getenv, os.Stderr),
		ControllerManager: true,
	})
	if err != nil {
		return fail("start the cluster", err)
	}
	defer func() {
		if err := suite.cluster.Stop(); err != nil {
			code = fail("stop the cluster", err)
		}
	}()
	if err := prepare(ctx); err != nil {
		return fail("prepare the cluster", err)
	}
	return m.Run()
}

// prepare makes what all tests need: a client and a node.
func prepare(ctx context.Context) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme, gatewayv1.Install} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	var err error
	if suite.client, err = client.NewWithWatch(suite.cluster.RESTConfig(), client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if err := gatewaycrds.Install(ctx, suite.cluster); err != nil {
		return err
	}
	for _, folder := range []string{"../../config/crd", mutation} {
		if err := suite.cluster.ApplyManifests(ctx, folder); err != nil {
			return err
		}
	}
	if err := waitMutation(ctx, true); err != nil {
		return err
	}
	err = suite.cluster.WaitFor(ctx, soon, "profiles are served", func(ctx context.Context) error {
		return suite.client.List(ctx, &v1alpha1.VMNetworkProfileList{})
	})
	if err != nil {
		return err
	}
	return suite.cluster.AddNode(ctx, nodeName)
}

// waitMutation waits until the API server extends the selectors of adopted Services, or does not.
func waitMutation(ctx context.Context, wanted bool) error {
	return suite.cluster.WaitFor(ctx, soon, fmt.Sprintf("selectors are extended: %t", wanted), func(ctx context.Context) error {
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: "probe", Labels: map[string]string{v1alpha1.LabelAdopted: "true"},
				Annotations: map[string]string{v1alpha1.AnnotationAdopt: "true"},
			},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}, Selector: map[string]string{"app": "web"}},
		}
		err := suite.client.Create(ctx, service, client.DryRunAll)
		if extended := service.Spec.Selector[v1alpha1.LabelServing] != ""; err == nil && extended != wanted {
			err = fmt.Errorf("it selects %v", service.Spec.Selector)
		}
		return err
	})
}
