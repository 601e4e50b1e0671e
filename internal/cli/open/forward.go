package open

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/internal/cli/doctor"
)

// Getter reads objects, see access.Cluster.
type Getter interface {
	Get(ctx context.Context, namespace, name string, into client.Object) error
}

// Leader returns the name of the pod that leads, by the managers' Lease.
func Leader(ctx context.Context, reader Getter, namespace string) (string, error) {
	var lease coordinationv1.Lease
	if err := reader.Get(ctx, namespace, doctor.ManagerLease, &lease); err != nil {
		return "", fmt.Errorf("find the manager that leads: %w", err)
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return "", fmt.Errorf("no manager leads: nobody holds Lease %s in namespace %s; see kubectl joulevirt doctor", doctor.ManagerLease, namespace)
	}
	pod, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	return pod, nil
}

// Forward forwards a free local port to one of a pod until the context ends, and returns it
// when it is open. What ends it sooner is sent.
func Forward(ctx context.Context, config *rest.Config, namespace, pod string, port int) (local uint16, ended <-chan error, err error) {
	address, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return 0, nil, fmt.Errorf("read the kubeconfig's server: %w", err)
	}
	address = address.JoinPath("api", "v1", "namespaces", namespace, "pods", pod, "portforward")
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return 0, nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	bySPDY := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, address)
	byWebsocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(address, config)
	if err != nil {
		return 0, nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	dialer := portforward.NewFallbackDialerForStreaming(byWebsocket, bySPDY, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	ready := make(chan struct{})
	forwarder, err := portforward.NewOnAddressesForStreaming(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)}, ctx.Done(), ready, io.Discard, io.Discard)
	if err != nil {
		return 0, nil, err
	}
	end := make(chan error, 1)
	go func() { end <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-end:
		return 0, nil, fmt.Errorf("forward a port to pod %s in namespace %s: %w; it takes the right to create pods/portforward there", pod, namespace, err)
	case <-ctx.Done():
		return 0, nil, ctx.Err()
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return 0, nil, err
	}
	return ports[0].Local, end, nil
}
