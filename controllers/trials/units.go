package trials

import (
	"math"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// Potentials tell what levers would save on a node, as far as that was worked out.
type Potentials interface {
	Of(node string) []model.Potential
}

// ProofSettings reads how a policy wants savings to be proven.
func ProofSettings(policy *v1alpha1.EnergyPolicy) proof.Settings {
	return proof.Settings{HoldBack: float64(ptr.Deref(policy.Spec.Verification.HoldBackPercent, 0)) / 100, Confidence: ledger.Confidence}
}

// needsNoTrial tells whether a person decided that levers act without one.
func needsNoTrial(policy *v1alpha1.EnergyPolicy) bool {
	return policy.Spec.Verification.Trials == v1alpha1.TrialsDisabled
}

// meterStep is what intervals of servers' figures are rounded up to: they differ a little
// from one to the next, and blocks are drawn by them.
const meterStep = 15 * time.Second

// MeterOf tells what judges a node. Agents' counters are read with each pull, and exact
// between; a server's figures are means over their intervals, and placed by their times
// however late they come. The zero value: there is no meter.
func MeterOf(choice energy.Choice, pull time.Duration) verify.Meter {
	if !choice.Metered {
		return verify.Meter{}
	}
	interval := max(time.Second, pull)
	if choice.Source == v1alpha1.PowerPrometheus {
		interval = meterStep
		if choice.Power != nil {
			steps := math.Ceil((choice.Power.IntervalSeconds - 1) / meterStep.Seconds())
			interval = meterStep * time.Duration(max(1, steps))
		}
	}
	return verify.Meter{Interval: interval, Freshness: interval}
}

// meterAwaited is what is to be expected of a node of which it is too early to say whether
// it has a meter: that of the first source that is one. Without, levers would not have to
// prove themselves while nothing was heard.
func meterAwaited(settings []energy.Setting, pull time.Duration) verify.Meter {
	for _, setting := range settings {
		if setting.Type.Measures() {
			return MeterOf(energy.Choice{Source: setting.Type, Metered: true}, pull)
		}
	}
	return verify.Meter{}
}

const (
	// mostPackageWatts and mostCPUWatts bound what CPU packages draw, by how many CPUs they
	// have: the hungriest draw less than half of it.
	mostPackageWatts, mostCPUWatts units.Watts = 100, 50
)

// MostWatts is more than a node can draw as its meter sees it: a whole machine may have
// accelerators of which nothing is known, CPU packages are bounded by their CPUs.
func MostWatts(report *v1alpha1.NodeReport, choice energy.Choice) units.Watts {
	if report == nil || choice.Power == nil || choice.Power.Scope != v1alpha1.PowerScopePackage {
		return ledger.MostNodeWatts
	}
	topology, err := observe.Topology(report.Status.Topology)
	if err != nil || len(topology.Cores) == 0 {
		return ledger.MostNodeWatts
	}
	return min(ledger.MostNodeWatts, mostPackageWatts+mostCPUWatts*units.Watts(topology.Online().Len()))
}

// nodeFacts is what is known of a node when it is planned.
type nodeFacts struct {
	policy model.Policy
	// waits is true when nothing new may be done.
	waits bool
	vms   map[v1alpha1.TrafficClass]int
}

func factsOf(node *model.Node) nodeFacts {
	f := nodeFacts{
		policy: node.Policy, vms: map[v1alpha1.TrafficClass]int{},
		waits: node.Frozen || node.Hold.Reason != "" || node.OptOut.All || !node.Reported || node.Rates == nil || node.MeterUnknown || node.MeterLost,
	}
	for i := range node.VMs {
		f.vms[node.VMs[i].TrafficClass]++
	}
	return f
}

// nodeSight is what is known of a node in one round.
type nodeSight struct {
	objects.GovernedNode
	choice energy.Choice
	// begun is false until it is known what earlier managers took the node to be.
	begun bool
	class verify.Class
	// meter that judges the node, as it was last known.
	meter verify.Meter
	// facts are nil until the node was planned.
	facts *nodeFacts
	// plan that the node has. Nil: none.
	plan       *v1alpha1.NodePlan
	has        []model.Schedule
	potentials []model.Potential
}

// isKnown tells whether it is known of what class the node is. One that is not, as before a
// new leader planned it, is no unit yet: it would leave its class, and its trial.
func (s *nodeSight) isKnown() bool {
	return s.begun && s.facts != nil && (s.Report != nil || s.class != (verify.Class{}))
}

// unit is the node as something on which levers are tried.
func (s *nodeSight) unit(policy *v1alpha1.EnergyPolicy, now time.Time) proof.Unit {
	u := proof.Unit{
		Name: s.Node.Name, Nodes: []string{s.Node.Name}, Class: s.class, Meter: s.meter, MeterLost: !s.choice.LostSince.IsZero(), MostWatts: MostWatts(s.Report, s.choice),
		Approved: needsNoTrial(policy) || policy.Spec.Mode == v1alpha1.ModeRecommend, Has: s.has,
	}
	f := s.facts
	if f == nil || f.policy.Name != policy.Name {
		return u
	}
	for _, p := range s.potentials {
		// Slices protect, and save nothing themselves.
		if p.VMs > 0 && f.policy.Allows(p.Lever) && p.Lever.ActsOnNodes() && p.Lever != v1alpha1.LeverSlice {
			u.Candidates = append(u.Candidates, proof.Candidate{Lever: p.Lever, Watts: p.Watts, Comes: planner.Comes(p.VMs, &f.policy)})
		}
	}
	u.Ready = !f.waits && !policy.Spec.Paused && policy.Spec.Mode != v1alpha1.ModeObserve && !s.choice.Unknown && !u.MeterLost &&
		s.plan != nil && s.plan.Spec.Apply && s.plan.Spec.Policy == policy.Name && !objects.IsChanging(s.plan, now)
	return u
}

// foretold is what the levers of a node without a meter save by the models when they do all
// that they can, if the policy lets them act on those. Of one that did not come to all VMs yet
// that is not known.
func (s *nodeSight) foretold(partly []v1alpha1.Lever) map[v1alpha1.Lever]power.Estimate {
	if s.choice.Metered || s.facts == nil || s.facts.policy.Name != s.Policy || !s.facts.policy.AllowModelled {
		return nil
	}
	out := map[v1alpha1.Lever]power.Estimate{}
	for _, p := range s.potentials {
		if p.StdErr > 0 && !slices.Contains(partly, p.Lever) {
			out[p.Lever] = power.Estimate{Watts: p.Watts, StdErr: p.StdErr}
		}
	}
	return out
}
