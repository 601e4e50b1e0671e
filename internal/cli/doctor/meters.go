package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/show"
)

// meters tells how the nodes' power is known. Of governed nodes the policies' statuses say
// whether some source measures them; of all others there is only the agents' word.
func meters(in Input) []Check {
	if len(in.Reports) == 0 {
		return nil
	}
	bySource := map[string]int{}
	for i := range in.Reports {
		bySource[string(ownSource(&in.Reports[i]))]++
	}
	var words []string
	for _, source := range sorted(bySource) {
		words = append(words, fmt.Sprintf("%s %d", source, bySource[source]))
	}
	check := Check{Area: areaNodes, Name: "Meters", Finding: OK, Message: "sources of the nodes' own figures: " + strings.Join(words, ", ")}
	governed, metered := 0, 0
	for i := range in.Policies {
		governed += int(in.Policies[i].Status.Nodes.Governed)
		metered += int(in.Policies[i].Status.Nodes.Metered)
	}
	if governed > 0 {
		check.Message += fmt.Sprintf("; by their policies' sources %d of %s metered", metered, isAre(governed, "governed node"))
	}
	named, more := unmetered(in, governed-metered)
	if len(named)+more == 0 {
		return []Check{check}
	}
	check.Finding, check.Nodes = Note, named
	check.Message += "; without a meter: " + without(named, more)
	check.Costs = "on nodes without a meter power is modelled or unknown, nothing is proven, and mode Enforce needs allowModelled"
	check.Fix = "name a Prometheus server with Kepler or a platform meter in spec.energy.sources of the policy"
	return []Check{check}
}

// ownSource is how a node's agent knows its power.
func ownSource(report *v1alpha1.NodeReport) v1alpha1.PowerSource {
	if power := report.Status.Power; power.Source != "" && power.Watts != nil {
		return power.Source
	}
	return v1alpha1.PowerNone
}

// unmetered are the nodes that nothing measures, as far as they are known by name, and how
// many there are more. count is how many of the governed there are.
func unmetered(in Input, count int) (named []string, more int) {
	for i := range in.Policies {
		named = append(named, in.Policies[i].Status.UnmeteredNodes...)
	}
	more = max(count-len(named), 0)
	governed := governedNodes(in)
	for i := range in.Reports {
		if r := &in.Reports[i]; ownSource(r) != v1alpha1.PowerRAPL && !governed(r.Name) {
			named = append(named, r.Name)
		}
	}
	slices.Sort(named)
	return slices.Compact(named), more
}

// governedNodes returns what tells whether a policy governs a node, which has a plan then.
// Where plans cannot be read all nodes are taken to be governed, if any may be.
func governedNodes(in Input) func(node string) bool {
	if in.Err(facts.Plans) != nil {
		return func(string) bool { return len(in.Policies) > 0 }
	}
	planned := map[string]bool{}
	for i := range in.Plans {
		planned[in.Plans[i].Name] = true
	}
	return func(node string) bool { return planned[node] }
}

func without(named []string, more int) string {
	if len(named) == 0 {
		return show.Count(more, "governed node")
	}
	return show.SomeOf(named, more)
}

func isAre(n int, thing string) string {
	if n == 1 {
		return "1 " + thing + " is"
	}
	return fmt.Sprintf("%d %ss are", n, thing)
}
