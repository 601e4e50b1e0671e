package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/joulevirt/joulevirt/internal/datapath"
	"github.com/joulevirt/joulevirt/internal/host/linux"
)

// nodeOptions say where the node is.
type nodeOptions struct {
	roots    linux.Options
	stateDir string
	log      zap.Options
}

type options struct {
	node nodeOptions

	nodeName         string
	namespace        string
	kubeconfig       string
	ratesAddress     string
	advertiseAddress string
	metricsAddress   string
	healthAddress    string
	interval         time.Duration
	staleAfter       time.Duration
	startDelay       time.Duration
	perVMMetrics     bool
}

func defaultOptions() *options {
	return &options{
		node: nodeOptions{
			roots: linux.Options{
				ProcRoot: "/proc", SysRoot: defaultSysRoot, Datapath: datapath.Options{PinRoot: "/sys/fs/bpf/joulevirt"},
			},
			stateDir: "/var/lib/joulevirt",
		},
		namespace: "joulevirt-system", ratesAddress: ":8443", healthAddress: ":8081",
		interval: time.Second, staleAfter: 15 * time.Minute, startDelay: 2 * time.Minute, perVMMetrics: true,
	}
}

func (o *nodeOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.roots.ProcRoot, "proc-root", o.roots.ProcRoot, "Where the node's /proc is mounted.")
	flags.StringVar(&o.roots.SysRoot, "sys-root", o.roots.SysRoot, "Where the node's /sys is mounted.")
	flags.StringVar(&o.roots.CgroupRoot, "cgroup-root", "", "Where the node's cgroup file systems are mounted. Empty: fs/cgroup of --sys-root.")
	flags.StringVar(&o.roots.Datapath.PinRoot, "bpf-root", o.roots.Datapath.PinRoot,
		"Folder of a BPF file system where the programs that shape and hold packets are kept beyond the agent's life.")
	flags.StringVar(&o.stateDir, "state-dir", o.stateDir, "Folder of the node where the journal of changes is kept.")
}

// addLogFlags adds the controller runtime's, which know the standard flag package only.
func addLogFlags(flags *pflag.FlagSet, o *zap.Options) {
	logFlags := flag.NewFlagSet("", flag.ContinueOnError)
	o.BindFlags(logFlags)
	flags.AddGoFlagSet(logFlags)
}

func (o *options) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.nodeName, "node-name", "", "Name of the Node. Empty: the environment's NODE_NAME.")
	flags.StringVar(&o.namespace, "namespace", o.namespace, "Namespace of the manager: of its Lease, and of the agents' trust.")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "Path of a kubeconfig. Empty: the pod's own account.")
	flags.StringVar(&o.ratesAddress, "rates-bind-address", o.ratesAddress, "Address of /v1/rates and /metrics, which need a client certificate.")
	flags.StringVar(&o.advertiseAddress, "advertise-address", "",
		"Host, or host:port, where the manager reaches --rates-bind-address. Empty: the environment's POD_IP.")
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", "", "Address of /metrics for clients that the API server knows and lets read it, or 0 for none.")
	flags.StringVar(&o.healthAddress, "health-probe-bind-address", o.healthAddress, "Address of /healthz and /readyz. Empty: none.")
	flags.DurationVar(&o.interval, "sample-interval", o.interval, "Time between two rounds of samples, from 100ms to 30s. Guards act once a round: above 1s they undo levers later than within 2 s.")
	flags.DurationVar(&o.staleAfter, "stale-after", o.staleAfter,
		"Age of the manager's Lease from which on everything is reverted, up to 20 % more or less.")
	flags.DurationVar(&o.startDelay, "start-delay", o.startDelay,
		"Time after the agent's start in which no lever begins to act on a VM. What an earlier agent applied stays, and reverting never waits.")
	flags.BoolVar(&o.perVMMetrics, "per-vm-metrics", o.perVMMetrics, "Have /metrics show each VM and each CPU.")
}

// complete fills in what the environment says.
func (o *options) complete(getenv func(string) string) {
	if o.nodeName == "" {
		o.nodeName = getenv("NODE_NAME")
	}
	if o.advertiseAddress == "" {
		o.advertiseAddress = getenv("POD_IP")
	}
	_, port, err := net.SplitHostPort(o.ratesAddress)
	if host := strings.Trim(o.advertiseAddress, "[]"); err == nil && isHost(host) {
		o.advertiseAddress = net.JoinHostPort(host, port)
	}
}

// isHost reports whether an address has no port yet.
func isHost(address string) bool {
	if _, err := netip.ParseAddr(address); err == nil {
		return true
	}
	return address != "" && !strings.Contains(address, ":")
}

func (o *options) validate() error {
	if o.nodeName == "" {
		return errors.New("--node-name is required: the name of the Node that the agent runs on")
	}
	if _, _, err := net.SplitHostPort(o.advertiseAddress); err != nil {
		return fmt.Errorf("--advertise-address %q must be a host or host:port, or POD_IP must be set: %w", o.advertiseAddress, err)
	}
	// Over longer times energy counters may wrap twice, and the manager counts
	// rates as stale before the next come.
	const least, most = 100 * time.Millisecond, 30 * time.Second
	if o.interval < least || o.interval > most {
		return fmt.Errorf("--sample-interval must be from %v to %v, not %v", least, most, o.interval)
	}
	if o.staleAfter <= 0 {
		return fmt.Errorf("--stale-after must be above zero, not %v", o.staleAfter)
	}
	if o.startDelay < 0 {
		return fmt.Errorf("--start-delay must not be below zero, but is %v", o.startDelay)
	}
	return nil
}
