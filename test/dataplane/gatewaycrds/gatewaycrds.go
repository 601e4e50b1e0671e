// Package gatewaycrds installs the Gateway API's CustomResourceDefinitions into
// a test cluster: those of the version that go.mod requires.
package gatewaycrds

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	extensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/internal/gomod"
)

const module = "sigs.k8s.io/gateway-api"

// establishTimeout bounds how long an API server may take to serve the kinds.
const establishTimeout = time.Minute

// channel is the one of the release channels that is installed.
const channel = "standard"

// Install installs the CustomResourceDefinitions and the ValidatingAdmissionPolicy
// of the standard channel and returns when the API server serves the kinds.
func Install(ctx context.Context, c *cluster.Cluster) error {
	root, err := gomod.Dir(ctx, "", module)
	if err != nil {
		return err
	}
	if err := c.ApplyManifests(ctx, filepath.Join(root, "config", "crd", channel)); err != nil {
		return fmt.Errorf("install the Gateway API's %s channel: %w", channel, err)
	}
	return c.WaitFor(ctx, establishTimeout, "the Gateway API's kinds are served", func(ctx context.Context) error {
		var crds extensionsv1.CustomResourceDefinitionList
		if err := c.Client().List(ctx, &crds); err != nil {
			return err
		}
		found := 0
		for i := range crds.Items {
			if crds.Items[i].Annotations["gateway.networking.k8s.io/channel"] != channel {
				continue
			}
			if !cluster.Established(&crds.Items[i]) {
				return fmt.Errorf("%s is not established", crds.Items[i].Name)
			}
			found++
		}
		if found == 0 {
			return fmt.Errorf("no CustomResourceDefinition is of channel %s", channel)
		}
		return nil
	})
}
