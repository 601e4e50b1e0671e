package policy

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/statuses"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/units"
)

// maxSourceMessage is what the API takes.
const maxSourceMessage = 512

// bitsPerGB is of 1e9 bytes.
const bitsPerGB = 8e9

// namedUnmetered nodes are named in condition MeterAvailable.
const namedUnmetered = 5

// energyOfNode is what is known of a governed node.
type energyOfNode struct {
	name   string
	choice energy.Choice
	// report and rates are nil when there are none, or none fresh.
	report *v1alpha1.NodeReport
	rates  *model.NodeRates
	// awaited is true until the node's agent was asked for its rates.
	awaited bool
}

// reported is what the node's agent says. Nil: nothing, or nothing fresh.
func (n *energyOfNode) reported() *v1alpha1.NodeReportStatus {
	if n.report == nil {
		return nil
	}
	return &n.report.Status
}

// isPlannable reports whether the node's cores are known and its rates at hand, or soon.
func (n *energyOfNode) isPlannable() bool {
	return n.report != nil && len(n.report.Status.Topology.CoreGroups) > 0 && (n.awaited || n.rates != nil)
}

// energyTally is what was counted of the power of a policy's nodes, which are
// added in the order of their names.
type energyTally struct {
	// sources are in the policy's order.
	sources []v1alpha1.EnergySourceStatus
	// watts of the metered nodes. Nil: there is no figure.
	watts *units.Watts
	// scopes counts the metered nodes by what their figures cover.
	scopes map[v1alpha1.PowerScope]int
	// traffic of the VMs, and watts of their nodes, where both are known.
	traffic      units.BitsPerSecond
	trafficWatts units.Watts
	// unmetered are the first nodes without measured power, and why is why the first meter
	// of the first of them does not give it.
	unmetered []string
	why       *energy.Attempt
	// lost is the first node that was metered within a day, and lostSince when last.
	lost      string
	lostSince time.Time
	// doubted is the first metered node whose meter gives nothing newer, and why.
	doubted string
	doubt   *energy.Attempt
	// awaited is true when a meter or an agent was not heard yet.
	awaited bool
	// anyExporter is true when a source reads Kepler's counters whoever exports them.
	anyExporter bool
}

func newEnergyTally(settings []energy.Setting) energyTally {
	tally := energyTally{scopes: map[v1alpha1.PowerScope]int{}}
	for _, setting := range settings {
		server := setting.Server
		tally.anyExporter = tally.anyExporter || server.URL != "" && server.Query == "" && server.Matchers == ""
		tally.sources = append(tally.sources, v1alpha1.EnergySourceStatus{Type: setting.Type})
	}
	return tally
}

func (t *energyTally) add(node energyOfNode) {
	choice := node.choice
	t.awaited = t.awaited || node.awaited
	for i := range t.sources {
		if t.sources[i].Type == choice.Source {
			t.sources[i].Nodes++
		}
	}
	for i := range choice.Attempts {
		t.blame(node.name, &choice.Attempts[i])
	}
	if choice.Doubt != nil {
		t.blame(node.name, choice.Doubt)
	}
	if choice.Metered {
		t.addMetered(node)
		return
	}
	if t.lost == "" && !choice.LostSince.IsZero() {
		t.lost, t.lostSince = node.name, choice.LostSince
	}
	t.awaited = t.awaited || choice.Unknown && slices.ContainsFunc(choice.Attempts, func(a energy.Attempt) bool {
		return a.Reason == energy.ReasonAwaiting
	})
	if len(t.unmetered) == 0 {
		at := slices.IndexFunc(choice.Attempts, func(a energy.Attempt) bool { return a.Type.Measures() })
		if at >= 0 {
			t.why = &choice.Attempts[at]
		}
	}
	if len(t.unmetered) < namedUnmetered {
		t.unmetered = append(t.unmetered, node.name)
	}
}

// blame notes the first trouble of a source.
func (t *energyTally) blame(node string, attempt *energy.Attempt) {
	for i := range t.sources {
		source := &t.sources[i]
		if source.Type == attempt.Type && source.Reason == "" {
			source.Reason = string(attempt.Reason)
			source.Message = statuses.Cut("node "+node+": "+attempt.Message, maxSourceMessage)
		}
	}
}

func (t *energyTally) addMetered(node energyOfNode) {
	if t.doubt == nil && node.choice.Doubt != nil {
		t.doubted, t.doubt = node.name, node.choice.Doubt
	}
	power := node.choice.Power
	if power == nil {
		// The agent's rates are not at hand: its report has a coarse figure.
		if reported := node.report.Status.Power; reported.Watts != nil {
			t.addWatts(units.Watts(*reported.Watts), reported.Scope)
		}
		return
	}
	t.addWatts(power.Watts, power.Scope)
	if node.rates == nil {
		return
	}
	t.trafficWatts += power.Watts
	for i := range node.rates.VMs {
		t.traffic += node.rates.VMs[i].Traffic().BitsPerSecond
	}
}

func (t *energyTally) addWatts(watts units.Watts, scope v1alpha1.PowerScope) {
	if t.watts == nil {
		t.watts = new(units.Watts)
	}
	*t.watts += watts
	if scope != "" {
		t.scopes[scope]++
	}
}

// write gives the status its figures.
func (t *energyTally) write(status *v1alpha1.EnergyPolicyStatus) {
	status.EnergySources = t.sources
	if t.watts != nil {
		rounded := int64(math.Round(float64(*t.watts)))
		status.Watts = &rounded
	}
	if t.traffic > 0 {
		status.JoulesPerGB, _ = statuses.Decimal(float64(t.trafficWatts)/(float64(t.traffic)/bitsPerGB), 3)
	}
}

// keepEnergy repeats what the status said of energy, as the condition
// MeterAvailable does by not being set.
func keepEnergy(status, was *v1alpha1.EnergyPolicyStatus) {
	status.Nodes.Metered = was.Nodes.Metered
	status.EnergySources, status.Watts, status.JoulesPerGB = was.EnergySources, was.Watts, was.JoulesPerGB
}

func meterAvailable(tally policyTally) metav1.Condition {
	e := tally.energy
	meter := metav1.Condition{
		Type: v1alpha1.ConditionMeterAvailable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonMeterFound,
		Message: fmt.Sprintf("the power of %d of %d governed nodes is measured", tally.nodes.Metered, tally.nodes.Governed),
	}
	switch {
	case tally.nodes.Governed == 0:
		meter.Status, meter.Reason = metav1.ConditionFalse, v1alpha1.ReasonNoMeter
		meter.Message = "the policy governs no node whose power could be measured: see condition Ready"
		return meter
	case len(e.unmetered) > 0:
		meter.Status, meter.Reason = metav1.ConditionFalse, v1alpha1.ReasonNoMeter
		meter.Message += fmt.Sprintf(": on the others, such as %s, mode Enforce acts only with spec.energy.allowModelled: set it, or ", strings.Join(e.unmetered, ", "))
		if e.why == nil {
			meter.Message += "name a meter, Prometheus or RAPL, in spec.energy.sources"
			break
		}
		meter.Reason = string(e.why.Reason)
		meter.Message += fmt.Sprintf("repair source %s of node %s: %s", e.why.Type, e.unmetered[0], e.why.Message)
	case e.doubt != nil:
		meter.Message += fmt.Sprintf(". Source %s of node %s gives nothing newer, and what it gave ages: %s: %s", e.doubt.Type, e.doubted, e.doubt.Reason, e.doubt.Message)
	}
	if e.lost != "" {
		meter.Reason = v1alpha1.ReasonMeterLost
		meter.Message += fmt.Sprintf(". Node %s was metered until %s: until %s no lever begins to act there unproven, and with spec.energy.allowModelled what acts stays",
			e.lost, e.lostSince.UTC().Format(time.RFC3339), observe.LostUntil(e.lostSince).UTC().Format(time.RFC3339))
	}
	if e.anyExporter {
		if meter.Reason == v1alpha1.ReasonMeterFound {
			meter.Reason = v1alpha1.ReasonNoMatchers
		}
		meter.Message += ". Everybody whose exporter the Prometheus server scrapes can speak for the meters of these nodes: " +
			"set prometheus.matchers of the source to labels of Kepler's series, such as namespace and job"
	}
	if len(e.scopes) > 1 {
		meter.Message += fmt.Sprintf(". status.watts adds figures of different parts of nodes: of the CPU packages on %d, of the whole machine on %d",
			e.scopes[v1alpha1.PowerScopePackage], e.scopes[v1alpha1.PowerScopePlatform])
	}
	return meter
}
