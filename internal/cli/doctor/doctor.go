// Package doctor looks for what is missing of an installation, and says what each missing
// thing costs and how to get it. It is a pure function of what was read.
package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/show"
)

// Finding says how one thing does.
type Finding string

// The findings, the best first.
const (
	// OK: nothing is wrong.
	OK Finding = "OK"
	// Note: something is missing that only some levers or figures need.
	Note Finding = "Note"
	// Problem: something does not work that should.
	Problem Finding = "Problem"
	// Unknown: it could not be looked at.
	Unknown Finding = "Unknown"
)

// Check is one thing that was looked at.
type Check struct {
	// Area that it belongs to, such as Nodes.
	Area string `json:"area"`
	// Name of the check.
	Name    string  `json:"name"`
	Finding Finding `json:"finding"`
	// Message says what was seen.
	Message string `json:"message"`
	// Costs is what does not work because of it. Empty: nothing.
	Costs string `json:"costs,omitempty"`
	// Fix is what to do. Empty: nothing.
	Fix string `json:"fix,omitempty"`
	// Nodes that it is about. Empty: not about nodes, or about all.
	Nodes []string `json:"nodes,omitempty"`
}

// Input is what was read. Errors say why a part is missing.
type Input struct {
	*facts.Facts
	// CLIVersion is the version of this program.
	CLIVersion string
	// Namespace that the product is installed in.
	Namespace string

	Server    *version.Info
	ServerErr error
	// Resources of the API group that are served, by plural name.
	Resources    []string
	ResourcesErr error
	Lease        *coordinationv1.Lease
	LeaseErr     error
	Manager      *appsv1.Deployment
	ManagerErr   error
}

// Diagnosis is a view of all checks.
type Diagnosis struct {
	metav1.TypeMeta `json:",inline"`
	// Healthy is true when nothing is a problem and everything could be looked at.
	Healthy bool    `json:"healthy"`
	Checks  []Check `json:"checks"`
	// Nodes with what their agents found.
	Nodes []NodeFacts `json:"nodes,omitempty"`
}

// Diagnose looks at everything.
func Diagnose(in Input) *Diagnosis {
	d := &Diagnosis{TypeMeta: show.Kind("Diagnosis")}
	for _, look := range []func(Input) []Check{kubernetes, kubeVirt, crds, manager, agents, reports, plans, capabilities, meters, policies, profiles} {
		d.Checks = append(d.Checks, look(in)...)
	}
	d.Nodes = nodeFacts(in.Facts)
	worst := d.worst()
	d.Healthy = worst != Problem && worst != Unknown
	return d
}

// ExitCode is 0 when nothing is wrong, 1 with problems, and 2 when nothing is seen to be wrong
// and not everything could be looked at.
func (d *Diagnosis) ExitCode() int {
	switch d.worst() {
	case Problem:
		return 1
	case Unknown:
		return 2
	default:
		return 0
	}
}

func (d *Diagnosis) worst() Finding {
	order := []Finding{OK, Note, Unknown, Problem}
	worst := OK
	for i := range d.Checks {
		if slices.Index(order, d.Checks[i].Finding) > slices.Index(order, worst) {
			worst = d.Checks[i].Finding
		}
	}
	return worst
}

// Tables show the checks, what is to be done, and, on demand, each node.
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
	return []show.Table{checks, fixes, nodeTable(d.Nodes)}
}

// Names are those of the nodes.
func (d *Diagnosis) Names() []string {
	var names []string
	for i := range d.Nodes {
		names = append(names, "node/"+d.Nodes[i].Name)
	}
	return names
}

// Least versions that the product works with.
const leastMinor = 30

func kubernetes(in Input) []Check {
	check := Check{Area: "Cluster", Name: "Kubernetes", Finding: OK}
	var major, minor int
	switch {
	case in.ServerErr != nil:
		check.Finding, check.Message = Unknown, in.ServerErr.Error()
		return []Check{check}
	case in.Server == nil:
		return nil
	}
	check.Message = "version " + in.Server.GitVersion
	if _, err := fmt.Sscanf(in.Server.Major+" "+in.Server.Minor, "%d %d", &major, &minor); err != nil {
		check.Finding, check.Message = Unknown, fmt.Sprintf("the API server's version %q cannot be read", in.Server.GitVersion)
	} else if major == 1 && minor < leastMinor {
		check.Finding, check.Costs = Problem, "admission policies that bound what agents may write are not there"
		check.Fix = fmt.Sprintf("upgrade Kubernetes to 1.%d or newer", leastMinor)
	}
	return []Check{check}
}

func kubeVirt(in Input) []Check {
	check := Check{Area: "Cluster", Name: "KubeVirt", Finding: OK}
	switch err := in.Err(facts.KubeVirt); {
	case isMissing(err):
		check.Finding, check.Message, check.Costs, check.Fix = Problem, err.Error(), "there are no VMs to act on", "install KubeVirt"
	case err != nil:
		check.Finding, check.Message, check.Fix = Unknown, "it cannot be looked at", err.Error()
	case len(in.KubeVirt) == 0:
		check.Finding, check.Message = Problem, "its CRDs are installed, and there is no KubeVirt object"
		check.Costs, check.Fix = "no VM can run", "create the KubeVirt object of KubeVirt's release"
	default:
		kv := &in.KubeVirt[0]
		check.Message = strings.TrimSpace(string(kv.Status.Phase) + " " + kv.Status.ObservedKubeVirtVersion)
		if kv.Status.Phase != "Deployed" {
			check.Finding, check.Fix = Note, fmt.Sprintf("see the conditions of KubeVirt %s/%s", kv.Namespace, kv.Name)
			check.Message = "its phase is " + show.Or(string(kv.Status.Phase)) + ", not Deployed"
		}
	}
	return []Check{check}
}

// ownResources are the plural names of the product's kinds.
func ownResources() []string {
	return []string{"energyledgers", "energypolicies", "nodeplans", "nodereports", "vmnetworkprofiles"}
}

func crds(in Input) []Check {
	check := Check{Area: "Product", Name: "CRDs", Finding: OK, Message: fmt.Sprintf("all %d kinds are served", len(ownResources()))}
	if in.ResourcesErr != nil {
		check.Finding, check.Message = Unknown, in.ResourcesErr.Error()
		return []Check{check}
	}
	missing := slices.DeleteFunc(ownResources(), func(name string) bool { return slices.Contains(in.Resources, name) })
	if len(missing) == 0 {
		return []Check{check}
	}
	check.Finding, check.Fix = Problem, "kubectl apply --server-side -k config/crd, of the version of the manager"
	check.Message = "missing: " + strings.Join(missing, ", ")
	check.Costs = "what these kinds are for does not work"
	if len(missing) == len(ownResources()) {
		check.Message, check.Costs = "none of the product's kinds is served: it is not installed", "everything"
		check.Fix = "kubectl apply --server-side -k config/default"
	}
	return []Check{check}
}

// oldReport is three times the time between two reports of an agent.
const oldReport = 15 * time.Minute
