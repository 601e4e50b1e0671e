package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/show"
)

// NodeFacts is what the agent of a node found.
type NodeFacts struct {
	Name string `json:"name"`
	// ReportedAt is when the agent wrote its report. Nil: it never did.
	ReportedAt    *metav1.Time `json:"reportedAt,omitempty"`
	AgentVersion  string       `json:"agentVersion,omitempty"`
	KernelVersion string       `json:"kernelVersion,omitempty"`
	// Capabilities that the node lacks, with why.
	Missing []v1alpha1.Capability `json:"missing,omitempty"`
	Power   v1alpha1.Power        `json:"power,omitzero"`
	// Meter is the status and reason of condition MeterAvailable.
	Meter string `json:"meter,omitempty"`

	reported, measured string // ages in words
}

func sorted[V any](of map[string]V) []string { return slices.Sorted(maps.Keys(of)) }

// agents looks for nodes that run VMs without an agent that reports.
func agents(in Input) []Check {
	check := Check{Area: "Nodes", Name: "Agents report", Finding: OK}
	if err := in.Err(facts.Reports); err != nil {
		check.Finding, check.Message = Unknown, "reports cannot be read"
		if !isMissing(err) {
			check.Fix = err.Error()
		}
		return []Check{check}
	}
	fresh, old, silent := map[string]bool{}, []string{}, []string{}
	for i := range in.Reports {
		at := in.Reports[i].Status.ReportedAt
		fresh[in.Reports[i].Name] = at != nil && in.Now.Sub(at.Time) <= oldReport
		if !fresh[in.Reports[i].Name] {
			old = append(old, in.Reports[i].Name)
		}
	}
	for i := range in.Nodes {
		_, reported := fresh[in.Nodes[i].Name]
		if _, runs := in.Nodes[i].Labels[virtv1.NodeSchedulable]; runs && !reported {
			silent = append(silent, in.Nodes[i].Name)
		}
	}
	bad := slices.Sorted(slices.Values(append(old, silent...)))
	check.Message = show.Count(len(in.Reports)-len(old), "agent") + " reported in the last " + fmt.Sprint(oldReport.Minutes()) + " minutes"
	check.Nodes = bad
	switch {
	case len(bad) > 0:
		check.Finding, check.Costs = Problem, "nothing new is done on these nodes, and their power is not known"
		check.Message = fmt.Sprintf("%d of %s: old or missing on %s", len(bad), show.Count(len(in.Reports)+len(silent), "node"), show.Some(bad))
		check.Fix = fmt.Sprintf("kubectl -n %s get pods -o wide -l app.kubernetes.io/component=agent, and read the log of that node's", in.Namespace)
	case len(in.Reports) == 0:
		check.Finding, check.Message = Problem, "no agent ever reported"
		check.Costs, check.Fix = "nothing is known of any node", fmt.Sprintf("kubectl -n %s get daemonset joulevirt-agent", in.Namespace)
	case in.Err(facts.Nodes) != nil:
		check.Message += "; whether others should is not known: " + in.Err(facts.Nodes).Error()
		check.Finding = Unknown
	}
	return []Check{check}
}

// capabilities tells what nodes lack, and what each costs.
func capabilities(in Input) []Check {
	lacking, why := map[string][]string{}, map[string]string{}
	known := 0
	for i := range in.Reports {
		for _, c := range in.Reports[i].Status.Capabilities {
			known++
			if !c.Available {
				lacking[c.Name] = append(lacking[c.Name], in.Reports[i].Name)
				why[c.Name] = c.Message
			}
		}
	}
	if known == 0 {
		return nil
	}
	if len(lacking) == 0 {
		return []Check{{Area: "Nodes", Name: "Capabilities", Finding: OK, Message: "no node lacks anything"}}
	}
	var checks []Check
	for _, name := range sorted(lacking) {
		slices.Sort(lacking[name])
		need := needOf(name)
		checks = append(checks, Check{
			Area: "Nodes", Name: name, Finding: Note, Nodes: lacking[name], Costs: need.costs, Fix: need.fix,
			Message: fmt.Sprintf("missing on %s: %s", show.Some(lacking[name]), why[name]),
		})
	}
	return checks
}

func nodeFacts(f *facts.Facts) []NodeFacts {
	var out []NodeFacts
	for i := range f.Reports {
		s := &f.Reports[i].Status
		node := NodeFacts{
			Name: f.Reports[i].Name, ReportedAt: s.ReportedAt, AgentVersion: s.AgentVersion, KernelVersion: s.KernelVersion, Power: s.Power,
			reported: show.Age(s.ReportedAt, f.Now), measured: show.Age(s.Power.MeasuredAt, f.Now),
		}
		for _, c := range s.Capabilities {
			if !c.Available {
				node.Missing = append(node.Missing, c)
			}
		}
		if meter := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionMeterAvailable); meter != nil {
			node.Meter = string(meter.Status) + " " + meter.Reason
		}
		out = append(out, node)
	}
	slices.SortFunc(out, func(x, y NodeFacts) int { return strings.Compare(x.Name, y.Name) })
	return out
}

// nodeTable is shown on demand.
func nodeTable(nodes []NodeFacts) show.Table {
	table := show.Table{Heading: "Nodes:", WideOnly: true, Columns: show.Columns("NODE", "REPORTED", "AGENT", "KERNEL", "METER", "SOURCE", "MEASURED", "MISSING")}
	for i := range nodes {
		n := &nodes[i]
		var missing []string
		for _, c := range n.Missing {
			missing = append(missing, c.Name)
		}
		table.Rows = append(table.Rows, []string{
			n.Name, n.reported, show.Or(n.AgentVersion), show.Or(n.KernelVersion), show.Or(n.Meter), show.Or(string(n.Power.Source)), n.measured,
			show.Or(strings.Join(missing, ",")),
		})
	}
	return table
}
