package loop

import (
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy/stream"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/learned"
	"github.com/joulevirt/joulevirt/internal/observe/slots"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/power/prior"
	"github.com/joulevirt/joulevirt/internal/trials"
	"github.com/joulevirt/joulevirt/test/simulated"
)

// node is a simulated node with its agent, and what the manager knows of it.
type node struct {
	*simulated.Managed
	spec  spec
	twins *twins
	world *world

	// planned is when the node was planned last.
	planned    time.Time
	potentials []model.Potential

	name string
	now  time.Time
	// samples that trials did not get yet, and slots that were measured.
	samples  []slots.Sample
	measured []trials.Slot
	truth    truth
}

// policyOf is the policy of the loop: what saves has to be proved.
func policyOf() model.Policy {
	policy := simulated.EnforcePolicy(levers()...)
	policy.AllowModelled = false
	return policy
}

// newModels that know nothing but priors.
func newModels() (*learned.Models, error) {
	priors, err := prior.Default()
	if err != nil {
		return nil, err
	}
	return learned.New(priors), nil
}

// newNode returns a node with its VMs and its agent, of which models learn. The caller calls
// close.
func newNode(s spec, models *learned.Models) (*node, error) {
	n := &node{spec: s, name: s.name, now: start()}
	var err error
	if n.twins, err = newTwins(&n.spec); err != nil {
		return nil, err
	}
	if n.world, err = newWorld(&n.spec, n.twins.of); err != nil {
		return nil, err
	}
	n.truth.add(n.now, n.twins.joules())
	o := simulated.Options{Host: n.twins.Host, AgentHost: n.twins, Policy: policyOf(), Models: models}
	for i := range n.world.guests {
		o.VMs = append(o.VMs, n.world.guests[i].profile)
	}
	n.Managed, err = simulated.Manage(o)
	return n, err
}

// pass lets a tick pass. The agent makes a round at its end and at each time at which a
// schedule wants one, and the manager learns from each.
func (n *node) pass() error {
	if err := n.world.next(n.now, n.twins.of); err != nil {
		return err
	}
	end := n.now.Add(n.spec.Tick)
	for n.now.Before(end) {
		next := boundary(n.schedules(), n.now, end)
		if err := n.twins.advance(next.Sub(n.now)); err != nil {
			return err
		}
		n.now = next
		n.truth.add(n.now, n.twins.joules())
		n.Round()
		if err := n.Observe(); err != nil {
			return err
		}
		rates := n.Rates()
		n.samples = append(n.samples, slots.Sample{
			Sample: stream.Sample{Rates: rates, Received: rates.Time, Power: rates.Power, Now: rates.Time}, Schedules: n.schedules(),
		})
	}
	return n.truth.serve(n.now, n.world.guests, n.twins)
}

// schedules of the node's plan.
func (n *node) schedules() []model.Schedule {
	if n.Plan == nil {
		return nil
	}
	return n.Plan.Schedules
}

// replanning is how often a node is planned whose proofs stay.
const replanning = 5 * time.Minute

// replan makes the node's plan, when it is due, or it was not for long.
func (n *node) replan(stand []model.Proof, due bool) {
	if !due && n.now.Sub(n.planned) < replanning {
		return
	}
	is := n.Snapshot()
	is.Proofs = stand
	if is.Review {
		// What levers would save is no other in between, and as much work as the plan.
		n.potentials = planner.Potential(is, n.now)
	}
	n.planned = n.now
	n.Follow(is)
}

// unit is the node as trials see it.
func (n *node) unit() trials.Unit {
	u := trials.Unit{Name: n.name, Nodes: []string{n.name}, CPUModel: "simulated " + n.spec.kind.model, Metered: true}
	for _, p := range n.potentials {
		if p.VMs > 0 && slices.Contains(levers(), p.Lever) && n.now.Sub(start()) >= warming {
			u.Candidates = append(u.Candidates, p.Lever)
		}
	}
	return u
}

// times of a slot.
func times(lever v1alpha1.Lever, number int64) (from, to time.Time) {
	s := model.NewSchedule(lever, "", model.TrialOneIn)
	return s.StartOf(number), s.StartOf(number + 1)
}

// saved is what a lever saved in a slot, and drawn what the node would have drawn without it.
func (n *node) saved(lever v1alpha1.Lever, number int64) (saved, drawn float64) {
	j := n.truth.drawn(times(lever, number))
	return j[lacking(lever)] - j[actual], j[lacking(lever)]
}

// savedIn is what a lever saved in the slots with it on of the stratum that ended before a slot.
func (n *node) savedIn(lever v1alpha1.Lever, before int64) float64 {
	last := n.measured[len(n.measured)-1]
	oneIn := last.Levers[lever]
	s := model.NewSchedule(lever, n.name, max(oneIn, -oneIn))
	sum := 0.
	for _, slot := range n.measured {
		if s.Stratum(slot.Number) == s.Stratum(last.Number) && slot.Number < before && slot.Levers[lever] == s.OneIn {
			saved, _ := n.saved(lever, slot.Number)
			sum += saved
		}
	}
	return sum
}

// trueShare of its energy that a lever saves on the node, by the slots with it on.
func (n *node) trueShare(lever v1alpha1.Lever) float64 {
	saved, drawn := 0., 0.
	for _, slot := range n.measured {
		if slot.Levers[lever] > 0 {
			s, d := n.saved(lever, slot.Number)
			saved, drawn = saved+s, drawn+d
		}
	}
	if drawn == 0 {
		return 0
	}
	return saved / drawn
}

// explored is what the trial of a lever cost that best saves a share.
func (n *node) explored(lever v1alpha1.Lever, best float64) float64 {
	cost := 0.
	for _, slot := range n.measured {
		if code := slot.Levers[lever]; code == model.TrialOneIn || code == -model.TrialOneIn {
			saved, drawn := n.saved(lever, slot.Number)
			cost += best*drawn - saved
		}
	}
	return cost
}

// boundary is when a schedule switches next, or what it washes out ends, at most the given
// time.
func boundary(schedules []model.Schedule, now, end time.Time) time.Time {
	for i := range schedules {
		s := &schedules[i]
		next := s.Next(now)
		// Never earlier than the next whole second: rounds are a second apart at least.
		for _, at := range []time.Time{next, next.Add(s.WashOut() - s.Slot)} {
			if at = at.Add(time.Second - 1).Truncate(time.Second); at.After(now) && at.Before(end) {
				end = at
			}
		}
	}
	return end
}
