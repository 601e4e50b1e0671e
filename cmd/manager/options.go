package main

import (
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/joulevirt/joulevirt/controllers"
	"github.com/joulevirt/joulevirt/controllers/group"
	"github.com/joulevirt/joulevirt/controllers/node"
	"github.com/joulevirt/joulevirt/internal/cli/access"
)

type options struct {
	kubeconfig     string
	namespace      string
	leaderElect    bool
	metricsAddress string
	metricsCertDir string
	healthAddress  string
	pprofAddress   string
	page           bool
	pageAudiences  []string
	qps            float32
	burst          int
	statusDelay    time.Duration
	pull           controllers.PullOptions
	energy         node.EnergyOptions
	traffic        group.Options
	log            zap.Options
}

func defaultOptions() *options {
	return &options{
		leaderElect: true, metricsAddress: ":8443", healthAddress: ":8081", pprofAddress: "0", page: true, pageAudiences: []string{access.PageAudience},
		qps: 200, burst: 400,
		statusDelay: controllers.DefaultStatusDelay, pull: controllers.DefaultPullOptions(), energy: node.DefaultEnergyOptions(),
		traffic: group.DefaultOptions(),
	}
}

func (o *options) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "Path of a kubeconfig. Empty: the pod's own account.")
	flags.StringVar(&o.namespace, "namespace", "", "Namespace that the manager runs in: of its Lease, and of the agents' trust.")
	flags.BoolVar(&o.leaderElect, "leader-elect", o.leaderElect,
		"Renew the Lease joulevirt-manager. Agents undo everything when nobody renews it: turn it off for development only.")
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", o.metricsAddress, "Address of the secured metrics and the page, or 0 for none.")
	flags.StringVar(&o.metricsCertDir, "metrics-cert-dir", "", "Directory with tls.crt and tls.key of the metrics. Empty: self-signed.")
	flags.StringVar(&o.healthAddress, "health-probe-bind-address", o.healthAddress, "Address of /healthz and /readyz, or 0 for none.")
	flags.StringVar(&o.pprofAddress, "pprof-bind-address", o.pprofAddress,
		"Address of Go's profiles at /debug/pprof/, such as 127.0.0.1:6060, or 0 for none. Whoever reaches it may read them.")
	flags.BoolVar(&o.page, "page", o.page, "Serve the built-in page at /page/ of the metrics' address.")
	flags.StringSliceVar(&o.pageAudiences, "page-audiences", o.pageAudiences,
		"Audiences of the tokens that open the page: one of them is needed. Add the API server's own for ID tokens of an OIDC provider that it trusts.")
	flags.Float32Var(&o.qps, "kube-api-qps", o.qps, "Requests a second to the API server, -1 for no limit of the manager's own.")
	flags.IntVar(&o.burst, "kube-api-burst", o.burst, "Requests at once to the API server.")
	flags.DurationVar(&o.statusDelay, "status-delay", o.statusDelay,
		"How long statuses of profiles and policies wait for further changes before they are written.")
	flags.DurationVar(&o.pull.Interval, "rates-interval", o.pull.Interval, "Time between two pulls of the agents' rates.")
	flags.DurationVar(&o.pull.Settle, "replan-interval", o.pull.Settle, "Least time between two plans of a node for changed loads alone.")
	flags.DurationVar(&o.pull.Review, "review-interval", o.pull.Review,
		"Time after which VMs that were left unbound, and pools and pins in force, are looked at anew. Between, they change only for what cannot stay.")
	flags.DurationVar(&o.energy.Interval, "energy-interval", o.energy.Interval,
		"Time between two questions to each Prometheus server that policies name, and between two looks at what is known of the nodes' power.")
	flags.DurationVar(&o.traffic.Replan, "traffic-interval", o.traffic.Replan,
		"Time between two plans of a group's traffic, each of which moves a part of it. VMs that are not ready are replaced at once.")

	// The controller runtime's zap options know the standard flag package only.
	logFlags := flag.NewFlagSet("", flag.ContinueOnError)
	o.log.BindFlags(logFlags)
	flags.AddGoFlagSet(logFlags)
}

func (o *options) validate() error {
	if o.namespace == "" {
		return errors.New("--namespace is required: the namespace that the manager runs in")
	}
	for name, d := range map[string]time.Duration{
		"--rates-interval": o.pull.Interval, "--replan-interval": o.pull.Settle, "--review-interval": o.pull.Review,
		"--energy-interval": o.energy.Interval, "--traffic-interval": o.traffic.Replan,
	} {
		if d <= 0 {
			return fmt.Errorf("%s must be above zero, not %s", name, d)
		}
	}
	if o.pull.StaleAfter <= o.pull.Interval {
		return fmt.Errorf("--rates-interval must be below %s, not %s: rates would be stale before the next come", o.pull.StaleAfter, o.pull.Interval)
	}
	return nil
}
