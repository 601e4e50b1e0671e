// Package stack is a test cluster with Joulevirt installed as its manifests
// install it, and this machine as one of the nodes: VMs bound to it run for
// real, under the launcher stand-in. Manager and agent run as processes with
// the arguments, the ServiceAccounts and the capabilities that the shipped
// Deployment and DaemonSet give them.
package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/cluster/handler"
	"github.com/joulevirt/joulevirt/test/cluster/launcher"
	"github.com/joulevirt/joulevirt/test/guest/gobuild"
	"github.com/joulevirt/joulevirt/test/internal/proc"
)

const modulePath = "github.com/joulevirt/joulevirt"

// Namespace is where the manifests install the product.
const Namespace = "joulevirt-system"

// Options choose the size of a stack.
type Options struct {
	// Binaries says where the control plane's programs come from.
	Binaries binaries.Source
	// NodeName is the Node that is this machine. Required.
	NodeName string
	// SimulatedNodes is how many nodes kwok plays beside it.
	SimulatedNodes int
	// CacheDir keeps the guest's image between runs. Required unless Seeded.
	CacheDir string
	// Seeded leaves out everything that starts VMs: the caller seeds VMIs
	// before the manager and the agent start, and plays their processes.
	Seeded func(context.Context, *cluster.Cluster) error
	// APIAddresses are more addresses of this machine that the API server serves at.
	APIAddresses []netip.Addr
	// Progress gets a line for each step.
	Progress io.Writer
}

// Stack is a running stack.
type Stack struct {
	*cluster.Cluster
	options  Options
	launcher *launcher.Runtime
	programs string
	group    *proc.Group
	// SimulatedNodes are the names of the nodes that kwok plays.
	SimulatedNodes []string
	// StateDir is the agent's, empty at the start.
	StateDir string
	// AgentPrefix is a command that runs the agents that are started from now on, and AgentFlags
	// are more arguments of theirs.
	AgentPrefix, AgentFlags []string

	manager, agent *Program
}

// Start brings up the cluster, installs the product with kubectl and starts the
// manager and this machine's agent. ctx bounds the start only.
func Start(ctx context.Context, options Options) (*Stack, error) {
	s := &Stack{options: options}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Stop(context.WithoutCancel(ctx)))
	}
	return s, nil
}

func (s *Stack) start(ctx context.Context) error {
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"prepare this machine as a node: guest image, pod network", s.prepareNode},
		{"start Kubernetes and KubeVirt", s.startCluster},
		{"add this machine as a node, and simulated ones", s.addNodes},
		{"build manager and agent", s.build},
		{"install Joulevirt: kubectl apply -k config/default", s.install},
		{"start the manager", s.StartManager},
		{"start this machine's agent", s.StartAgent},
	} {
		fmt.Fprintf(s.options.Progress, "  %s\n", step.name)
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

func (s *Stack) prepareNode(ctx context.Context) error {
	if s.options.Seeded != nil {
		return nil
	}
	var err error
	s.launcher, err = launcher.New(ctx, launcher.Options{CacheDir: s.options.CacheDir})
	return err
}

func (s *Stack) startCluster(ctx context.Context) error {
	options := cluster.Options{Binaries: s.options.Binaries, KubeVirt: cluster.KubeVirtAPI}
	if s.launcher != nil {
		options = cluster.Full(s.options.Binaries)
		options.Handler.RealNodes = map[string]handler.Runtime{s.options.NodeName: s.launcher.ForHandler()}
	}
	options.APIAddresses = s.options.APIAddresses
	var err error
	if s.Cluster, err = cluster.Start(ctx, options); err != nil {
		return err
	}
	return v1alpha1.AddToScheme(s.Client().Scheme())
}

func (s *Stack) addNodes(ctx context.Context) error {
	err := s.AddNode(ctx, cluster.RealNode{Name: s.options.NodeName, Capacity: corev1.ResourceList{
		// More CPUs than there are: the scheduler must not be what limits a
		// demonstration on a small machine.
		corev1.ResourceCPU: *resource.NewQuantity(int64(8*runtime.NumCPU()), resource.DecimalSI),
	}})
	if err != nil {
		return err
	}
	s.SimulatedNodes, err = s.AddSimulatedNodes(ctx, s.options.SimulatedNodes, cluster.SimulatedNodes{Prefix: "simulated"})
	if err != nil || s.options.Seeded == nil {
		return err
	}
	return s.options.Seeded(ctx, s.Cluster)
}

func (s *Stack) build(ctx context.Context) error {
	s.programs = filepath.Join(s.Dir(), "programs")
	s.StateDir = filepath.Join(s.Dir(), "agent-state")
	s.group = proc.NewGroup(s.Dir())
	for _, name := range []string{"manager", "agent"} {
		if _, err := Build(ctx, name, s.programs); err != nil {
			return err
		}
	}
	return nil
}

// Build builds one of the product's programs, manager or agent, in a folder and
// returns its path.
func Build(ctx context.Context, name, dir string) (string, error) {
	path := filepath.Join(dir, name)
	return path, gobuild.Static(ctx, modulePath+"/cmd/"+name, path)
}

func (s *Stack) install(ctx context.Context) error { return Install(ctx, s.Cluster) }

// Install installs the product in a cluster as its manifests do.
func Install(ctx context.Context, c *cluster.Cluster) error {
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	return c.ApplyManifests(ctx, filepath.Join(root, "config", "default"))
}

// Stop ends everything. It is idempotent.
func (s *Stack) Stop(ctx context.Context) error {
	var problems []error
	if s.group != nil {
		s.group.Stop()
	}
	if s.Cluster != nil {
		problems = append(problems, s.Cluster.Stop())
	}
	if s.launcher != nil {
		problems = append(problems, s.launcher.Close(ctx))
	}
	return errors.Join(problems...)
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", modulePath).Output()
	if err != nil {
		return "", fmt.Errorf("find the sources of %s (run inside its folder): %w", modulePath, err)
	}
	return strings.TrimSpace(string(out)), nil
}
