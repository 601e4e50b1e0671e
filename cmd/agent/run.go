package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/joulevirt/joulevirt/internal/agent"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/agent/publish"
	"github.com/joulevirt/joulevirt/internal/agent/watch"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/host/linux"
	"github.com/joulevirt/joulevirt/internal/kube"
	"github.com/joulevirt/joulevirt/internal/pki"
	"github.com/joulevirt/joulevirt/internal/power/prior"
	"github.com/joulevirt/joulevirt/internal/usage"
	"github.com/joulevirt/joulevirt/internal/version"
)

// missedRounds without a sample make the agent unhealthy.
const missedRounds = 30

// gcPercent is how much more than what is in use the heap may have.
const gcPercent = 300

// defaultSysRoot is where no container has the node's /sys.
const defaultSysRoot = "/sys"

// lastWriteTimeout is what the end may take after the node was reverted: far
// below the pod's grace period.
const lastWriteTimeout = 5 * time.Second

// node is the node that the agent works on, opened.
type node struct {
	host    *linux.Host
	facts   host.Facts
	journal *journal.Journal
}

func openNode(o *nodeOptions) (*node, error) {
	h, err := linux.New(o.roots)
	if err != nil {
		return nil, err
	}
	n := &node{host: h}
	if n.facts, err = h.Facts(); err == nil {
		n.journal, err = journal.Open(o.stateDir, n.facts.BootID)
	}
	if err != nil {
		h.Close()
		return nil, err
	}
	return n, nil
}

func (n *node) close() {
	n.journal.Close()
	n.host.Close()
}

// restore is the restore command.
func restore(o *nodeOptions, out io.Writer) error {
	n, err := openNode(o)
	if err != nil {
		return err
	}
	defer n.close()
	was, err := agent.Restore(n.host, n.journal)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d threads were bound, %d had scheduler slices, %d uplinks were shaped and packets of %d taps were held; none is now\n",
		len(was.Threads), len(was.Slices), len(was.Uplinks), len(was.Taps))
	return nil
}

// run wires the agent and runs it until the context ends.
func run(ctx context.Context, o *options) error {
	log := zap.New(zap.UseFlagOptions(&o.node.log)).WithValues("node", o.nodeName)
	klog.SetLogger(log) // of client-go
	// Thousands of short system calls a second cost a fifth more when threads hand them to each
	// other.
	runtime.GOMAXPROCS(1)
	// The heap is small and most of it is made anew each second: collecting it less often costs
	// some megabytes and saves a tenth of the agent's time.
	debug.SetGCPercent(gcPercent)
	// The garbage collector keeps the heap below the container's limit.
	if _, err := memlimit.Set(); err != nil {
		log.Info("the container's memory limit is not known", "reason", err.Error())
	}
	if o.node.roots.SysRoot != defaultSysRoot {
		if err := makeReadOnly(o.node.roots.SysRoot, "/proc/1/ns/mnt"); err != nil {
			log.Info("the node's /sys may be writable below", "reason", err.Error())
		}
	}
	config, err := restConfig(o.kubeconfig)
	if err != nil {
		return err
	}
	priors, err := prior.Default()
	if err != nil {
		return err
	}
	n, err := openNode(&o.node)
	if err != nil {
		return err
	}
	defer n.close()
	client, err := kube.NewClient(config)
	if err != nil {
		return err
	}
	cluster, err := watch.New(client, o.nodeName, o.namespace)
	if err != nil {
		return err
	}
	writer := publish.NewWriter(client, o.nodeName)
	group, ctx := errgroup.WithContext(ctx)
	board := &publish.Board{}
	if err := serve(ctx, group, o, board, config, log); err != nil {
		return err
	}
	real := clock.RealClock{}
	statuses := publish.NewPlanStatuses(writer, real, log.WithName("plan"))
	loop, err := agent.New(agent.Options{
		Node: o.nodeName, Interval: o.interval, StaleAfter: agent.Jitter(o.staleAfter, rand.Float64()), StartDelay: o.startDelay,
		Host: n.host, Cluster: cluster, Statuses: statuses,
		Prior: priors.Node, CPUTime: usage.CPUTime, Board: board, Clock: real, Log: log,
	}, n.journal)
	if err != nil {
		return err
	}
	findings := publish.Findings{RatesAddress: o.advertiseAddress, Facts: n.facts}
	group.Go(func() error { return loop.Run(ctx) })
	group.Go(func() error { return cluster.Run(ctx) })
	group.Go(func() error { return statuses.Run(ctx) })
	group.Go(func() error { return publish.RunReporter(ctx, writer, real, board, findings, log.WithName("report")) })
	err = group.Wait()
	// The context has ended; what the agent did last is written all the same.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWriteTimeout)
	defer cancel()
	if flushErr := statuses.Flush(last); flushErr != nil {
		log.Info("NodePlan status of the agent's end not written", "reason", flushErr.Error())
	}
	return err
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	var config *rest.Config
	var err error
	if kubeconfig == "" {
		config, err = rest.InClusterConfig()
	} else {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("find the API server: give --kubeconfig outside of a cluster: %w", err)
	}
	config.UserAgent = "joulevirt-agent/" + version.String()
	return config, nil
}

// serve starts the agent's servers.
func serve(ctx context.Context, group *errgroup.Group, o *options, board *publish.Board, config *rest.Config, log logr.Logger) error {
	// Whoever asks for metrics takes requests from this client's rate, and not from the agent's.
	client, err := kube.NewClient(config)
	if err != nil {
		return err
	}
	signed := pki.NewAgentTLS(client, o.nodeName, o.namespace, log.WithName("pki"))
	group.Go(func() error { return signed.Run(ctx) })
	handlers, err := publish.NewHandlers(board, clock.RealClock{}, missedRounds*o.interval, publish.NewCollector(publish.CollectorOptions{
		Board: board, Node: o.nodeName, PerVM: o.perVMMetrics, Version: version.String(), Expires: signed.Expires,
	}), log.WithName("serve"))
	if err != nil {
		return err
	}
	listen := func(address string, settings *tls.Config, handler http.Handler) {
		if address != "" && address != "0" {
			group.Go(func() error { return handlers.Serve(ctx, address, settings, handler) })
		}
	}
	listen(o.ratesAddress, signed.Config(), handlers.Secured())
	listen(o.healthAddress, nil, handlers.Health())
	// The certificate of the metrics is self-signed: it keeps listeners out, and the token says
	// who asks.
	certificate, key, err := certutil.GenerateSelfSignedCertKey(o.nodeName, nil, nil)
	if err != nil {
		return fmt.Errorf("certificate of /metrics: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return fmt.Errorf("certificate of /metrics: %w", err)
	}
	authorizer := publish.NewAuthorizer(client, clock.RealClock{}, log.WithName("metrics"))
	listen(o.metricsAddress, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}}, authorizer.Guard(handlers.Metrics()))
	return nil
}
