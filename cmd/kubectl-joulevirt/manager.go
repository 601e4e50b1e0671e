package main

import (
	"context"
	"fmt"
	"net/url"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/joulevirt/joulevirt/internal/cli/access"
	"github.com/joulevirt/joulevirt/internal/cli/open"
	"github.com/joulevirt/joulevirt/internal/cli/top"
)

// manager is where the manager is asked.
type manager struct {
	*options
	system, account string
	port            int
}

func (m *manager) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&m.system, "system-namespace", "joulevirt-system", "Namespace that Joulevirt is installed in.")
	flags.StringVar(&m.account, "service-account", "joulevirt-page", "ServiceAccount there whose tokens open the page.")
	flags.IntVar(&m.port, "manager-port", 8443, "Port of the page in the manager's pod.")
}

// way to the manager that leads.
type way struct {
	pod    string
	url    *url.URL
	tokens *open.Tokens
	// ended has the error that ended the way.
	ended <-chan error
}

// reach forwards a local port to the manager that leads, until the context ends.
func (m *manager) reach(ctx context.Context) (*way, error) {
	cluster, err := m.cluster()
	if err != nil {
		return nil, err
	}
	config, err := m.config.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	to := &way{tokens: &open.Tokens{Client: clients, Account: types.NamespacedName{Namespace: m.system, Name: m.account}, Clock: m.clock}}
	if _, err := to.tokens.Token(ctx); err != nil {
		return nil, err
	}
	if to.pod, err = open.FindLeader(ctx, cluster, m.system); err != nil {
		return nil, err
	}
	port, ended, err := open.Forward(ctx, config, m.system, to.pod, m.port)
	if err != nil {
		return nil, err
	}
	to.ended, to.url = ended, &url.URL{Scheme: "https", Host: fmt.Sprintf("127.0.0.1:%d", port)}
	return to, nil
}

// live asks the manager that leads for the power of nodes and VMs. What is known without it is
// shown all the same, with a warning.
func (m *manager) live(ctx context.Context) top.Live {
	ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
	defer cancel()
	var live top.Live
	to, err := m.reach(ctx)
	if err == nil {
		err = open.Ask(ctx, to.url, access.LivePath, to.tokens, &live)
	}
	if err != nil {
		fmt.Fprintf(m.streams.ErrOut, "warning: manager: %v: watts of nodes are those of their agents, which may be modelled, and those of VMs are not known\n", err)
		return top.Live{}
	}
	return live
}
