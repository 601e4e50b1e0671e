package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/joulevirt/joulevirt/internal/cli/access"
	"github.com/joulevirt/joulevirt/internal/cli/open"
)

// pageOptions are the flags of command page.
type pageOptions struct {
	manager
	address   string
	noBrowser bool
}

func newPageCommand(o *options) *cobra.Command {
	p := &pageOptions{manager: manager{options: o}}
	command := &cobra.Command{
		Use:   "page",
		Short: "Open the manager's page on this machine",
		Long: "Open the page of the manager that leads on this machine, until the command is ended.\n\n" +
			"A local port is forwarded to the manager's pod, and requests get a short-lived token of a ServiceAccount that may read the page and nothing else: " +
			"your own credentials are not sent to the manager. You need the rights of Role joulevirt-page-user in the namespace of Joulevirt.",
		Example: "  kubectl joulevirt page\n  kubectl joulevirt page --address=127.0.0.1:9000 --no-browser",
		Args:    cobra.NoArgs,
		RunE:    func(command *cobra.Command, _ []string) error { return p.run(command.Context()) },
	}
	flags := command.Flags()
	flags.StringVar(&p.address, "address", "127.0.0.1:0", "Address of this machine to serve at. Port 0: a free one.")
	p.addFlags(flags)
	flags.BoolVar(&p.noBrowser, "no-browser", false, "Print the address only.")
	return command
}

func (p *pageOptions) run(ctx context.Context) error {
	host, _, err := net.SplitHostPort(p.address)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("--address=%s must be IP:PORT of this machine alone, such as 127.0.0.1:9000", p.address)
	}
	way, err := p.reach(ctx)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", p.address)
	if err != nil {
		return fmt.Errorf("--address: %w", err)
	}
	address := "http://" + listener.Addr().String() + access.PagePath
	fmt.Fprintln(p.streams.Out, address)
	fmt.Fprintf(p.streams.ErrOut, "The page of pod %s is open at this address until you press Ctrl-C.\n", way.pod)
	if !p.noBrowser {
		if err := startBrowser(ctx, address); err != nil {
			fmt.Fprintf(p.streams.ErrOut, "No browser can be started (%v): open the address yourself.\n", err)
		}
	}
	return serve(ctx, listener, open.NewProxy(listener.Addr().String(), way.url, way.tokens), way.ended)
}

// startBrowser starts the user's browser, as each system names it.
func startBrowser(ctx context.Context, address string) error {
	name, args := "xdg-open", []string{address}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", address}
	}
	return exec.CommandContext(ctx, name, args...).Start()
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
			err = errors.Join(errors.New("the manager's pod is not reachable any more: start the command again, which finds the manager that leads now"), err)
		}
	case err = <-served:
	}
	return errors.Join(err, server.Close())
}
