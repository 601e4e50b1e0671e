package cluster

import (
	"context"
	"encoding/base64"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/test/cluster/binaries"
)

// virtAPIName is the Service that the API server reaches virt-api by.
const virtAPIName = "virt-api"

// exporterImage is what nothing runs here.
const exporterImage = "registry.local/kubevirt/virt-exportserver:test"

// startKubeVirt starts virt-api and virt-controller under their own service
// accounts and wires virt-api into the API server.
func (c *Cluster) startKubeVirt(ctx context.Context) error {
	api, apiPort, err := c.launchVirtAPI(ctx)
	if err != nil {
		return err
	}
	controller, err := c.launchVirtController(ctx)
	if err != nil {
		return err
	}
	if err := ready(ctx, api.process, c.trusting(), api.health); err != nil {
		return err
	}
	if err := c.wireVirtAPI(ctx, apiPort); err != nil {
		return err
	}
	return answers(ctx, controller.process, c.trusting(), controller.health, "true")
}

func (c *Cluster) launchVirtAPI(ctx context.Context) (running, int, error) {
	_, kubeconfig, err := c.ServiceAccountConfig(ctx, kubevirtNamespace, "kubevirt-apiserver", "")
	if err != nil {
		return running{}, 0, err
	}
	port, err := c.ports.Take()
	if err != nil {
		return running{}, 0, err
	}
	service := virtAPIName + "." + kubevirtNamespace
	cert, key, err := c.servingFiles(virtAPIName, "localhost", virtAPIName, service, service+".svc")
	if err != nil {
		return running{}, 0, err
	}
	clientCert, clientKey, err := c.servingFiles("kubevirt.io:system:client:virt-handler")
	if err != nil {
		return running{}, 0, err
	}
	process, err := c.group.Start(virtAPIName, c.paths[binaries.VirtAPI],
		"--kubeconfig="+kubeconfig,
		"--listen=127.0.0.1", fmt.Sprintf("--port=%d", port),
		"--subresources-only",
		"--tls-cert-file="+cert, "--tls-key-file="+key,
		"--handler-cert-file="+clientCert, "--handler-key-file="+clientKey,
		"-v=2",
	)
	health := fmt.Sprintf("https://localhost:%d/apis/subresources.kubevirt.io/v1/healthz", port)
	return running{process, health}, port, err
}

func (c *Cluster) launchVirtController(ctx context.Context) (running, error) {
	_, kubeconfig, err := c.ServiceAccountConfig(ctx, kubevirtNamespace, "kubevirt-controller", "")
	if err != nil {
		return running{}, err
	}
	port, err := c.ports.Take()
	if err != nil {
		return running{}, err
	}
	cert, key, err := c.servingFiles("virt-controller", "localhost")
	if err != nil {
		return running{}, err
	}
	process, err := c.group.Start("virt-controller", c.paths[binaries.VirtController],
		"--kubeconfig="+kubeconfig,
		"--listen=127.0.0.1", fmt.Sprintf("--port=%d", port),
		"--prom-cert-file="+cert, "--prom-key-file="+key,
		"--launcher-image="+c.options.VirtHandler.LauncherImage, "--exporter-image="+exporterImage,
		// It is the only one, and would end when the machine stands still for longer.
		"--leader-elect-lease-duration=10m", "--leader-elect-renew-deadline=9m",
		"-v=2",
	)
	return running{process, fmt.Sprintf("https://localhost:%d/leader", port)}, err
}

// wireVirtAPI registers virt-api's webhooks and API groups. There is no pod
// network: the Service is an alias of localhost, on virt-api's real port.
func (c *Cluster) wireVirtAPI(ctx context.Context, port int) error {
	objects, err := c.kubevirtManifests(ctx, "webhooks")
	if err != nil {
		return err
	}
	bundle := base64.StdEncoding.EncodeToString(c.CACert())
	var groups []client.ObjectKey
	for _, object := range objects {
		if err := pointAt(object, int64(port), bundle); err != nil {
			return fmt.Errorf("wire %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		if object.GetKind() == "APIService" {
			groups = append(groups, client.ObjectKeyFromObject(object))
		}
	}
	if err := c.apply(ctx, objects); err != nil {
		return err
	}
	return c.WaitFor(ctx, partTimeout, "virt-api serves its API groups", func(ctx context.Context) error {
		for _, group := range groups {
			if err := c.apiServiceAvailable(ctx, group); err != nil {
				return err
			}
		}
		return nil
	})
}

// pointAt makes one of virt-api's objects lead to the port of this machine.
func pointAt(object *unstructured.Unstructured, port int64, bundle string) error {
	set := func(value any, fields ...string) error {
		return unstructured.SetNestedField(object.Object, value, fields...)
	}
	switch object.GetKind() {
	case "Service":
		return set(map[string]any{
			"type":         string(corev1.ServiceTypeExternalName),
			"externalName": "localhost",
			"ports":        []any{map[string]any{"port": port}},
		}, "spec")
	case "APIService":
		if err := set(port, "spec", "service", "port"); err != nil {
			return err
		}
		return set(bundle, "spec", "caBundle")
	}
	webhooks, _, err := unstructured.NestedSlice(object.Object, "webhooks")
	if err != nil {
		return err
	}
	for _, webhook := range webhooks {
		fields, ok := webhook.(map[string]any)
		if !ok {
			return fmt.Errorf("a webhook is a %T", webhook)
		}
		if err := unstructured.SetNestedField(fields, port, "clientConfig", "service", "port"); err != nil {
			return err
		}
		if err := unstructured.SetNestedField(fields, bundle, "clientConfig", "caBundle"); err != nil {
			return err
		}
		// The longest that there may be: a busy machine fails no request.
		if err := unstructured.SetNestedField(fields, int64(30), "timeoutSeconds"); err != nil {
			return err
		}
	}
	return set(webhooks, "webhooks")
}

func (c *Cluster) apiServiceAvailable(ctx context.Context, key client.ObjectKey) error {
	service := &unstructured.Unstructured{}
	service.SetAPIVersion("apiregistration.k8s.io/v1")
	service.SetKind("APIService")
	if err := c.client.Get(ctx, key, service); err != nil {
		return err
	}
	conditions, _, err := unstructured.NestedSlice(service.Object, "status", "conditions")
	if err != nil {
		return err
	}
	for _, condition := range conditions {
		if fields, ok := condition.(map[string]any); ok && fields["type"] == "Available" && fields["status"] == "True" {
			return nil
		}
	}
	return fmt.Errorf("APIService %s is not available: %v", key.Name, conditions)
}
