package starter

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
)

// document is YAML with comments.
type document struct{ strings.Builder }

func (d *document) line(format string, args ...any) {
	fmt.Fprintf(d, format+"\n", args...)
}

// Write returns an EnergyPolicy and VMNetworkProfiles for the cluster as YAML, with a comment on each
// choice.
func Write(f *facts.Facts) string {
	d := &document{}
	d.line("# Written by kubectl joulevirt init, which changed nothing. Look at it, change it, and apply it:")
	d.line("#   kubectl joulevirt init > start.yaml && kubectl apply -f start.yaml")
	d.policy(f)
	groups := findGroups(f)
	for i := range groups {
		d.profile(&groups[i])
	}
	if len(groups) == 0 {
		d.line("# No VMNetworkProfile: no Service was found in front of two VMs or more. Owners write profiles for")
		d.line("# TrafficShare and Buffering; Affinity and Slice need none, by spec.defaults above.")
	}
	return d.String()
}

func (d *document) policy(f *facts.Facts) {
	measured, reporting := countMeasured(f)
	prometheus, others := findPrometheus(f)
	kepler := findKepler(f)
	asked := prometheus != nil && kepler != nil && !kepler.old
	// Without a report RAPL may be there.
	meterless := reporting > 0 && measured == 0 && !asked
	d.line("apiVersion: joulevirt.io/v1alpha1\nkind: EnergyPolicy\nmetadata:\n  name: start\nspec:")
	d.line("  # All nodes that run VMs: no nodeSelector. Any other acting policy wins the nodes that it selects.")
	d.line("  priority: -100")
	d.line("  # Levers act by themselves where they prove that they save. Observe changes nothing.")
	d.line("  mode: Enforce")
	d.kubeVirt(f)
	d.line("  # VMs without a profile, %d now run in the cluster: their threads are placed, their packets are left alone.", len(f.VMs))
	d.line("  # Owners opt out by annotation %s on the VM's template.", v1alpha1.AnnotationOptOut)
	d.line("  defaults:\n    buffering: {floodDefence: Forbid}")
	d.line("  verification:")
	d.line("    # Each lever is tried first, and stays off in 5 %% of the time to measure what it saves.")
	d.line("    trials: Required\n    holdBackPercent: 5")
	d.line("  energy:\n    # For each node the first that has a fresh figure.\n    sources:")
	d.prometheus(f, prometheus, others, kepler)
	if reporting == 0 {
		d.line("    # RAPL, the node's own counters: whether nodes have it shows in NodeReports once agents run, and not before.")
	} else {
		d.line("    # RAPL, the node's own counters: %d of %d reporting nodes have it.", measured, reporting)
	}
	d.line("    - type: RAPL")
	d.line("    # A model ranks nodes without a meter, and proves nothing.")
	d.line("    - type: Model")
	if meterless {
		d.line("    # No node has a meter: levers act by the model's prediction. Nothing is tried or proven, and savings are")
		d.line("    # booked as modelled. With false nothing is done on these nodes.")
		d.line("    allowModelled: true")
		return
	}
	d.line("    # Nodes without a meter are left alone: preset unmetered is for them.")
	d.line("    allowModelled: false")
}

func (d *document) kubeVirt(f *facts.Facts) {
	version := ""
	if len(f.KubeVirt) > 0 {
		version = f.KubeVirt[0].Status.ObservedKubeVirtVersion
	}
	d.line("  # Affinity and Slice act on all VMs. TrafficShare and Buffering act on VMs whose owner agreed, by group and")
	d.line("  # latencyBudget of a VMNetworkProfile. Slice does nothing on kernels older than Linux 6.12.")
	if version == "" {
		d.line("  # KubeVirt was not found: there is nothing to act on yet.")
	} else {
		d.line("  # KubeVirt is %s: groups behind a route need 1.7, Services any.", version)
	}
	d.line("  levers: [Affinity, Slice, TrafficShare, Buffering]")
}

// prometheus is the source that asks a server for Kepler's counters, or why none can.
func (d *document) prometheus(f *facts.Facts, s *server, others int, kepler *exporter) {
	switch {
	case f.Err(facts.Services) != nil:
		d.line("    # Prometheus and Kepler: Services could not be listed, so that it is not known whether there are any.")
		return
	case s == nil && kepler == nil:
		d.line("    # Neither Prometheus nor Kepler was found.")
		return
	case s == nil:
		d.line("    # Kepler runs in namespace %s, and no Service of a Prometheus server was found that scrapes it.", kepler.namespace)
		return
	case kepler == nil:
		d.line("    # Prometheus is at %s; Kepler was not found. An own query for watts goes here, see docs/energy-sources.md.", s.url())
		return
	case kepler.old:
		d.line("    # Kepler in namespace %s is older than 0.10: it needs a query, see config/samples/energy/kepler-0.9.yaml.", kepler.namespace)
		return
	}
	d.line("    # Prometheus with Kepler's counters: whether the server scrapes them, and under which labels, shows the query")
	d.line("    # kepler_node_cpu_joules_total.")
	if others > 0 {
		d.line("    # %d other Services look like Prometheus servers too: take the one that scrapes Kepler.", others)
	}
	d.line("    - type: Prometheus\n      freshness: 2m # more than the time between two scrapes\n      prometheus:")
	d.line("        url: %s", s.url())
	if s.tls {
		d.line("        # A Secret with token and ca.crt in the manager's namespace, with label %s.", v1alpha1.LabelEnergyCredentials)
		d.line("        secret: prometheus-reader")
	}
	d.line("        # Whose series count: nobody else's may have these labels.")
	d.line("        matchers:\n          namespace: %q", kepler.namespace)
	if kepler.job != "" {
		d.line("          job: %q", kepler.job)
	}
}

func (s *server) url() string {
	scheme := "http"
	if s.tls {
		scheme = "https"
	}
	return fmt.Sprintf("%s://%s.%s.svc:%d", scheme, s.name, s.namespace, s.port)
}

// countMeasured counts the nodes that report, and those of them whose counters can be read.
func countMeasured(f *facts.Facts) (measured, reporting int) {
	for i := range f.Reports {
		if f.Reports[i].Status.Power.Source == v1alpha1.PowerRAPL {
			measured++
		}
	}
	return measured, len(f.Reports)
}

func (d *document) profile(g *group) {
	if g.taken != "" {
		d.line("---\n# Service %s in namespace %s has %d VMs, of which some belong to %s.", g.Name, g.Namespace, g.vms, g.taken)
		return
	}
	if g.hasUDP() {
		d.line("---\n# Service %s in namespace %s has %d VMs and a UDP port: kube-proxy moves UDP flows when a VM goes on standby, so", g.Name, g.Namespace, g.vms)
		d.line("# there is no profile for it here. group.allowUDP of a profile allows it.")
		return
	}
	d.line("---\n# Service %s has %d VMs. Ask the owner: it says that they are interchangeable.", g.Name, g.vms)
	d.line("apiVersion: joulevirt.io/v1alpha1\nkind: VMNetworkProfile\nmetadata:\n  namespace: %q\n  name: %q\nspec:", g.Namespace, g.Name)
	d.line("  # The labels by which the Service finds the VMs.")
	d.line("  selector:\n    matchLabels:")
	for _, key := range slices.Sorted(maps.Keys(g.selector)) {
		d.line("      %q: %q", key, g.selector[key])
	}
	d.line("  # Each reply is waited for. Throughput: some delay costs nothing.")
	d.line("  trafficClass: Interactive")
	d.line("  # Packets are never held. Buffering needs a budget, such as 1ms.")
	d.line("  latencyBudget: 0s")
	if g.serving {
		d.line("  # The Service selects by label %s already.", v1alpha1.LabelServing)
	} else {
		d.line("  # Traffic stays as it is until the Service's owner agrees (docs/guides/traffic-share.md):")
		d.line("  #   kubectl annotate service %s -n %s %s=true", g.Name, g.Namespace, v1alpha1.AnnotationAdopt)
	}
	if g.vms <= int(defaultMinActive) {
		d.line("  # With %d VMs both stay active: a third gives room.", g.vms)
	}
	d.line("  group:\n    kind: Service\n    name: %q", g.Name)
	d.line("    # So many serve whatever is planned, and the others can carry the loss of the largest.")
	d.line("    minActive: %d\n    headroom: LargestMember", defaultMinActive)
}

// defaultMinActive is the API's default.
const defaultMinActive int32 = 2
