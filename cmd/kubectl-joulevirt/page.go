package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/joulevirt/joulevirt/internal/cli/open"
)

// pageOptions are the flags of command page.
type pageOptions struct {
	*options
	address         string
	system, account string
	port            int
}

func newPageCommand(o *options) *cobra.Command {
	p := &pageOptions{options: o}
	command := &cobra.Command{
		Use:   "page",
		Short: "Open the manager's page on this machine",
		Long: "Open the page of the manager that leads on this machine, until the command is ended.\n\n" +
			"A local port is forwarded to the manager's pod, which takes the right to create pods/portforward in its namespace. " +
			"The page is read with your token; for a user without one, as with a client certificate, with one that is lent by a ServiceAccount that may only read. " +
			"The address that is printed has a key, without which other programs of this machine do not read by your rights.",
		Example: "  kubectl joulevirt page\n  kubectl joulevirt page --address=127.0.0.1:9000",
		Args:    cobra.NoArgs,
		RunE:    func(command *cobra.Command, _ []string) error { return p.run(command.Context()) },
	}
	flags := command.Flags()
	flags.StringVar(&p.address, "address", "127.0.0.1:0", "Address of this machine to serve at. Port 0: a free one.")
	flags.StringVar(&p.system, "system-namespace", "joulevirt-system", "Namespace that Joulevirt is installed in.")
	flags.StringVar(&p.account, "service-account", "joulevirt-page-viewer", "ServiceAccount there that lends a token to users without one.")
	flags.IntVar(&p.port, "manager-port", 8444, "Port of the page in the manager's pod.")
	return command
}

func (p *pageOptions) run(ctx context.Context) error {
	host, _, err := net.SplitHostPort(p.address)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("--address=%s must be IP:PORT of this machine alone, such as 127.0.0.1:9000", p.address)
	}
	cluster, err := p.cluster()
	if err != nil {
		return err
	}
	config, err := p.config.ToRESTConfig()
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	transport, err := p.transport(ctx, config)
	if err != nil {
		return err
	}
	pod, err := open.Leader(ctx, cluster, p.system)
	if err != nil {
		return err
	}
	port, ended, err := open.Forward(ctx, config, p.system, pod, p.port)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", p.address)
	if err != nil {
		return fmt.Errorf("--address: %w", err)
	}
	local := open.NewLocal(listener.Addr().String(), &url.URL{Scheme: "https", Host: fmt.Sprintf("127.0.0.1:%d", port)}, transport)
	fmt.Fprintf(p.streams.Out, "http://%s%s\n", listener.Addr(), local.Path())
	fmt.Fprintf(p.streams.ErrOut, "The page of pod %s is open at this address until you press Ctrl-C.\n", pod)
	return serve(ctx, listener, local, ended)
}

// transport reaches the manager with the user's token. The port is forwarded by the API server
// to the pod that it was asked for, whose certificate the manager made for itself.
func (p *pageOptions) transport(ctx context.Context, config *rest.Config) (http.RoundTripper, error) {
	tokens, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	base := &http.Transport{
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: defaultTimeout,
	}
	credentials := &open.Credentials{Tokens: tokens, Account: types.NamespacedName{Namespace: p.system, Name: p.account}, Clock: p.clock}
	return credentials.Transport(ctx, config, base)
}

// serve ends with the context, or when the port is not forwarded any more.
func serve(ctx context.Context, listener net.Listener, handler http.Handler, ended <-chan error) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: defaultTimeout}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	var err error
	select {
	case <-ctx.Done():
	case err = <-ended:
		if ctx.Err() == nil {
			err = errors.Join(errors.New("the manager's pod is not reached any more: start the command again, which finds the manager that leads now"), err)
		}
	case err = <-served:
	}
	return errors.Join(err, server.Close())
}
