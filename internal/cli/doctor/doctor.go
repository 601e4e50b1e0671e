// Package doctor finds what is missing in an installation, and shows what each missing thing
// costs and how to get it. A diagnosis is a pure function of objects and their statuses.
package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/internal/cli/access"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/reasons"
	"github.com/joulevirt/joulevirt/internal/cli/show"
)

// Names of what config/manager installs.
const (
	ManagerLease      = "joulevirt-manager"
	ManagerDeployment = "joulevirt-manager"
)

// Finding is the result of a check.
type Finding string

// The findings.
const (
	// OK: nothing is wrong.
	OK Finding = "OK"
	// Note: something is missing that only some levers or figures need.
	Note Finding = "Note"
	// Problem: something does not work that should.
	Problem Finding = "Problem"
	// Unknown: it could not be checked.
	Unknown Finding = "Unknown"
)

// Check is the result of one check.
type Check struct {
	// Area that it belongs to, such as Nodes.
	Area    string  `json:"area"`
	Name    string  `json:"name"`
	Finding Finding `json:"finding"`
	// Message says what was found.
	Message string `json:"message"`
	// Costs is what does not work because of it, and Fix what to do. Empty: nothing.
	Costs string `json:"costs,omitempty"`
	Fix   string `json:"fix,omitempty"`
}

// The areas.
const (
	areaCluster  = "Cluster"
	areaProduct  = "Product"
	areaNodes    = "Nodes"
	areaPolicies = "Policies"
)

// Parts are what a diagnosis needs of the cluster. It uses facts.PodMonitors as well, where they are served
// and may be read.
func Parts() []facts.Part {
	return []facts.Part{facts.KubeVirt, facts.Reports, facts.Nodes, facts.Plans, facts.Policies, facts.Profiles, facts.Hybrids, facts.VMs, facts.Services}
}

// Input is what was read. Errors say why a part is missing.
type Input struct {
	// Facts are the Parts, and facts.PodMonitors.
	*facts.Facts
	// Namespace that the product is installed in.
	Namespace string

	Server     *version.Info
	ServerErr  error
	Lease      *coordinationv1.Lease
	LeaseErr   error
	Manager    *appsv1.Deployment
	ManagerErr error
}

// Diagnosis is a view of all checks.
type Diagnosis struct {
	metav1.TypeMeta `json:",inline"`
	// Healthy is true if there is no problem and everything could be checked.
	Healthy bool    `json:"healthy"`
	Checks  []Check `json:"checks"`
}

// Diagnose runs all checks.
func Diagnose(in Input) *Diagnosis {
	d := &Diagnosis{TypeMeta: show.Kind("Diagnosis"), Checks: []Check{kubernetes(in), kinds(in), leader(in), deployment(in)}}
	for _, c := range []struct {
		needs facts.Part
		run   func(Input) []Check
	}{
		{facts.KubeVirt, kubeVirt}, {facts.Reports, agents}, {facts.Nodes, nodes}, {facts.Policies, policies}, {facts.Profiles, profiles}, {facts.PodMonitors, scraping},
	} {
		if in.Err(c.needs) == nil {
			d.Checks = append(d.Checks, c.run(in)...)
		}
	}
	if in.Need(facts.KubeVirt, facts.Hybrids) == nil {
		d.Checks = append(d.Checks, sharing(in)...)
	}
	if in.Need(facts.Profiles, facts.VMs, facts.Services) == nil {
		d.Checks = append(d.Checks, serving(in)...)
	}
	d.Checks = append(d.Checks, conditions(in)...)
	for _, part := range Parts() {
		// Another check reports missing kinds.
		if err := in.Err(part); err != nil && !access.Is(err, access.KindMissing) {
			d.Checks = append(d.Checks, Check{Area: areaCluster, Name: string(part), Finding: Unknown, Message: err.Error()})
		}
	}
	d.Healthy = d.ExitCode() == 0
	return d
}

// ExitCode is 0 if nothing is wrong, 1 with problems, and 2 without problems if not everything
// could be checked.
func (d *Diagnosis) ExitCode() int {
	found := func(finding Finding) bool {
		return slices.ContainsFunc(d.Checks, func(c Check) bool { return c.Finding == finding })
	}
	switch {
	case found(Problem):
		return 1
	case found(Unknown):
		return 2
	default:
		return 0
	}
}

// Tables show the checks, and what to do.
func (d *Diagnosis) Tables() []show.Table {
	checks := show.Table{Columns: show.Columns("AREA", "CHECK", "FINDING", "MESSAGE")}
	fixes := show.Table{Heading: "What to do:", Columns: show.Columns("CHECK", "COSTS", "FIX")}
	for i := range d.Checks {
		c := &d.Checks[i]
		checks.Rows = append(checks.Rows, []string{c.Area, c.Name, string(c.Finding), c.Message})
		if c.Fix != "" {
			fixes.Rows = append(fixes.Rows, []string{c.Name, show.Or(c.Costs), c.Fix})
		}
	}
	return []show.Table{checks, fixes}
}

// minMinor is the oldest Kubernetes 1.x that the product works with.
const minMinor = 30

func kubernetes(in Input) Check {
	check := Check{Area: areaCluster, Name: "Kubernetes", Finding: OK}
	if in.ServerErr != nil {
		check.Finding, check.Message = Unknown, in.ServerErr.Error()
		return check
	}
	check.Message = "version " + in.Server.GitVersion
	var major, minor int
	if _, err := fmt.Sscanf(in.Server.Major+" "+in.Server.Minor, "%d %d", &major, &minor); err != nil {
		check.Finding, check.Message = Unknown, fmt.Sprintf("version %q cannot be parsed", in.Server.GitVersion)
	} else if major == 1 && minor < minMinor {
		check.Finding, check.Costs = Problem, "admission policies that bound what agents may write are missing"
		check.Fix = fmt.Sprintf("upgrade Kubernetes to 1.%d or newer", minMinor)
	}
	return check
}

// kinds checks that the product's kinds and KubeVirt are installed.
func kinds(in Input) Check {
	var missing []string
	for _, part := range Parts() {
		if access.Is(in.Err(part), access.KindMissing) {
			missing = append(missing, string(part))
		}
	}
	check := Check{Area: areaProduct, Name: "CRDs", Finding: OK, Message: "all kinds are served"}
	if len(missing) > 0 {
		check.Finding, check.Message, check.Costs = Problem, "not installed: "+strings.Join(missing, ", "), "whatever needs these kinds does not work"
		check.Fix = "kubectl apply --server-side -k config/default, of the version of this program"
		if slices.Contains(missing, string(facts.KubeVirt)) {
			check.Fix = "install KubeVirt; then " + check.Fix
		}
	}
	return check
}

// leader checks the Lease that agents watch.
func leader(in Input) Check {
	check := Check{Area: areaProduct, Name: "Manager leads", Finding: Problem}
	check.Costs = "nothing new is planned, and agents revert their nodes about 15 minutes after the last renewal"
	check.Fix = fmt.Sprintf("kubectl -n %s get pods -l app.kubernetes.io/component=manager, and read the log of one", in.Namespace)
	switch {
	case access.Is(in.LeaseErr, access.NotFound):
		check.Message = fmt.Sprintf("no manager ever led: there is no Lease %s in namespace %s", ManagerLease, in.Namespace)
		check.Fix += "; if it is installed elsewhere, name the namespace with --system-namespace"
		return check
	case in.LeaseErr != nil:
		return Check{Area: areaProduct, Name: check.Name, Finding: Unknown, Message: in.LeaseErr.Error()}
	}
	spec := in.Lease.Spec
	if spec.RenewTime == nil || spec.HolderIdentity == nil || *spec.HolderIdentity == "" || spec.LeaseDurationSeconds == nil {
		check.Message = "no manager holds its Lease"
		return check
	}
	age := max(in.Now.Sub(spec.RenewTime.Time), 0).Truncate(time.Second)
	valid := time.Duration(*spec.LeaseDurationSeconds) * time.Second
	holder, _, _ := strings.Cut(*spec.HolderIdentity, "_")
	// Clocks of this machine and of the manager's node differ.
	if age > 2*valid {
		check.Message = fmt.Sprintf("no manager leads: %s renewed its Lease %s ago, for %s", holder, age, valid)
		return check
	}
	return Check{Area: areaProduct, Name: check.Name, Finding: OK, Message: fmt.Sprintf("%s leads, its Lease was renewed %s ago", holder, age)}
}

func deployment(in Input) Check {
	check := Check{Area: areaProduct, Name: "Manager runs", Finding: OK}
	switch {
	case access.Is(in.ManagerErr, access.NotFound):
		check.Finding, check.Message = Note, fmt.Sprintf("there is no Deployment %s in namespace %s: it runs in another way, or not at all", ManagerDeployment, in.Namespace)
		return check
	case in.ManagerErr != nil:
		check.Finding, check.Message = Unknown, in.ManagerErr.Error()
		return check
	}
	ready, wanted := in.Manager.Status.ReadyReplicas, int32(1)
	if in.Manager.Spec.Replicas != nil {
		wanted = *in.Manager.Spec.Replicas
	}
	check.Message = fmt.Sprintf("%d of %d pods are ready", ready, wanted)
	switch {
	case ready == 0:
		check.Finding, check.Fix = Problem, fmt.Sprintf("kubectl -n %s describe deployment %s", in.Namespace, ManagerDeployment)
	case ready < wanted:
		check.Finding, check.Costs = Note, "if the leader is lost, another has to start first"
	}
	return check
}

func kubeVirt(in Input) []Check {
	check := Check{Area: areaCluster, Name: "KubeVirt", Finding: OK}
	if len(in.KubeVirt) == 0 {
		check.Finding, check.Message = Problem, "its CRDs are installed, but there is no KubeVirt object"
		check.Costs, check.Fix = "no VM can run", "create the KubeVirt object of KubeVirt's release"
		return []Check{check}
	}
	kv := &in.KubeVirt[0]
	check.Message = strings.TrimSpace(string(kv.Status.Phase) + " " + kv.Status.ObservedKubeVirtVersion)
	if kv.Status.Phase != virtv1.KubeVirtPhaseDeployed {
		check.Finding, check.Fix = Note, fmt.Sprintf("see the conditions of KubeVirt %s/%s", kv.Namespace, kv.Name)
		check.Message = "its phase is " + show.Or(string(kv.Status.Phase)) + ", not Deployed"
	}
	return []Check{check}
}

// maxReportAge is three times the time between two reports of an agent.
const maxReportAge = 15 * time.Minute

// agents checks that agents report, and what their nodes lack.
func agents(in Input) []Check {
	check := Check{Area: areaNodes, Name: "Agents report", Finding: OK}
	var old []string
	lacking, message := map[string][]string{}, map[string]string{}
	for i := range in.Reports {
		name, status := in.Reports[i].Name, &in.Reports[i].Status
		if status.ReportedAt == nil || in.Now.Sub(status.ReportedAt.Time) > maxReportAge {
			old = append(old, name)
		}
		for _, c := range status.Capabilities {
			if !c.Available {
				lacking[c.Name], message[c.Name] = append(lacking[c.Name], name), c.Message
			}
		}
	}
	check.Message = fmt.Sprintf("%s reported in the last %.0f minutes", show.Count(len(in.Reports)-len(old), "agent"), maxReportAge.Minutes())
	switch {
	case len(in.Reports) == 0:
		check.Finding, check.Message, check.Costs = Problem, "no agent ever reported", "nothing is known about any node"
		check.Fix = fmt.Sprintf("kubectl -n %s get daemonset joulevirt-agent", in.Namespace)
	case len(old) > 0:
		check.Finding, check.Costs = Problem, "nothing new is done on these nodes, and their power is unknown"
		check.Message += "; not those of " + show.Some(old)
		check.Fix = agentLog(in)
	}
	checks := []Check{check}
	for _, name := range slices.Sorted(maps.Keys(lacking)) {
		need := reasons.All().Of(name)
		checks = append(checks, Check{
			Area: areaNodes, Name: name, Finding: Note, Costs: need.Means, Fix: need.Next,
			Message: strings.TrimSuffix(fmt.Sprintf("missing on %s: %s", show.Some(lacking[name]), message[name]), ": "),
		})
	}
	return checks
}

func agentLog(in Input) string {
	return fmt.Sprintf("kubectl -n %s get pods -o wide -l app.kubernetes.io/component=agent, and read the log of that node's", in.Namespace)
}

// nodes checks that nodes that run VMs have an agent.
func nodes(in Input) []Check {
	reported := map[string]bool{}
	for i := range in.Reports {
		reported[in.Reports[i].Name] = true
	}
	var silent []string
	for i := range in.Nodes {
		if _, runsVMs := in.Nodes[i].Labels[virtv1.NodeSchedulable]; runsVMs && !reported[in.Nodes[i].Name] {
			silent = append(silent, in.Nodes[i].Name)
		}
	}
	if len(silent) == 0 || len(in.Reports) == 0 {
		return nil
	}
	return []Check{{
		Area: areaNodes, Name: "Agents run", Finding: Problem, Message: "no agent ever reported on " + show.Some(silent),
		Costs: "VMs on these nodes are not acted on", Fix: agentLog(in),
	}}
}

// policies checks that there are policies, and whether the nodes that they govern are metered.
func policies(in Input) []Check {
	check := Check{Area: areaPolicies, Name: "EnergyPolicies", Finding: OK}
	if len(in.Policies) == 0 {
		check.Finding, check.Message = Note, "there is none: nothing is changed anywhere, agents only report"
		check.Costs, check.Fix = "nothing is saved, and nothing is predicted", "kubectl apply -f policies/observe.yaml, which changes nothing"
		return []Check{check}
	}
	var names []string
	governed, metered := 0, 0
	for i := range in.Policies {
		status := &in.Policies[i].Status
		names = append(names, in.Policies[i].Name)
		governed += int(status.Nodes.Governed)
		metered += int(status.Nodes.Metered)
	}
	check.Message = show.Some(names)
	if governed == 0 {
		return []Check{check}
	}
	meters := Check{Area: areaNodes, Name: "Meters", Finding: OK, Message: fmt.Sprintf("%d of %s metered", metered, show.Count(governed, "governed node"))}
	if metered < governed {
		meters.Finding = Note
		meters.Costs = "on nodes without a meter power is modelled or unknown, nothing is proven, and mode Enforce needs allowModelled"
		meters.Fix = "name a Prometheus server with Kepler or a platform meter in spec.energy.sources of the policy; its condition MeterAvailable names nodes"
	}
	return []Check{check, meters}
}

func profiles(in Input) []Check {
	governed := int32(0)
	for i := range in.Profiles {
		governed += in.Profiles[i].Status.GovernedVMs
	}
	check := Check{Area: areaPolicies, Name: "VMNetworkProfiles", Finding: OK}
	check.Message = fmt.Sprintf("%s for %s", show.Count(len(in.Profiles), "profile"), show.Count(int(governed), "VM"))
	if len(in.Profiles) == 0 {
		check.Finding, check.Message = Note, "there is none: no VM is acted on"
		check.Costs, check.Fix = "nothing is saved", "write a VMNetworkProfile: config/samples has one"
	}
	return []Check{check}
}
