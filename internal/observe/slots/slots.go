// Package slots measures what nodes, groups of VMs and HybridWorkloads drew and did in each slot of the schedules that
// switch their levers: it cuts the intervals of package stream at the slots' boundaries. It is pure:
// time is given. docs/design/proof-and-ledger.md explains what counts.
package slots

import (
	"cmp"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy/stream"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/trials"
)

const (
	// leastCovered is the share of the judged part of a slot that the meter has to cover.
	leastCovered = 0.5
	// patience is how long after its end a slot waits for figures of servers.
	patience = 10 * time.Minute
	// late is by how much what an agent reports of a lever may be of another moment than the rates
	// that it reports it with.
	late = 2 * time.Second
)

// Sample is what is known of a node at one moment.
type Sample struct {
	stream.Sample
	// Schedules of the plan that the node has.
	Schedules []model.Schedule
}

// Measured is a slot that was measured.
type Measured struct {
	// Unit as model.LeversOf has it.
	Unit string
	trials.Slot
	// End of the slot, by the node's clock.
	End time.Time
}

// slot that is not over.
type slot struct {
	number int64
	// from is when the wash-out ends, to the end.
	start, from, to time.Time

	seconds, joules, received, sent, payload float64

	origin stream.Origin
	levers map[v1alpha1.Lever]int
	// gateways of a HybridWorkload, by their pods.
	gateways map[string]*served
	// seen is true once it is known what the levers did.
	seen bool
	// bad is true when levers were not as scheduled, or the meter changed.
	bad bool
}

// served is what clients got from a gateway less what it got from its VM, in bytes, over some time.
type served struct{ bytes, seconds float64 }

// cut cuts time into slots of one length.
type cut struct {
	model.Schedule
	open []*slot
}

func (c *cut) at(t time.Time) *slot {
	number := c.SlotAt(t)
	for _, s := range c.open {
		if s.number == number {
			return s
		}
	}
	start := c.StartOf(number)
	s := &slot{number: number, start: start, from: start.Add(c.WashOut()), to: start.Add(c.Slot), levers: map[v1alpha1.Lever]int{}, gateways: map[string]*served{}}
	c.open = append(c.open, s)
	return s
}

// add what is judged of an interval. One that reaches beyond its slot is a mean over two: it is left
// out. One that begins in the wash-out is cut: both parts are of the same setting.
func (c *cut) add(i *stream.Interval) {
	s := c.at(i.From.Add(i.Uncertainty))
	from, to := s.from.Add(i.Uncertainty), s.to.Add(-i.Uncertainty)
	if !i.HasTotals || i.From.Before(s.start.Add(i.Uncertainty)) || i.To.After(to) || !i.To.After(from) {
		return
	}
	share := 1.
	if i.From.Before(from) {
		share = float64(i.To.Sub(from)) / float64(i.To.Sub(i.From))
	}
	s.bad = s.bad || s.origin != (stream.Origin{}) && s.origin != i.Origin
	s.origin = i.Origin
	received, sent := i.Traffic()
	s.seconds += share * i.Seconds
	s.joules += share * float64(i.Joules)
	s.received += share * received
	s.sent += share * sent
	s.payload += share * i.Payload()
}

// measured is a slot of a node.
type measured struct {
	trials.Slot
	// payload of what VMs sent, in bytes per second.
	payload float64
}

// covers returns whether so many seconds are enough to judge the slot by.
func (s *slot) covers(seconds float64) bool {
	return seconds >= leastCovered*s.to.Sub(s.from).Seconds()
}

// closed takes off the slots that are over, as measured.
func (c *cut) closed(isPast func(time.Time) bool, now time.Time) []measured {
	var out []measured
	c.open = slices.DeleteFunc(c.open, func(s *slot) bool {
		if !isPast(s.to) && now.Before(s.to.Add(patience)) {
			return false
		}
		if !s.bad && s.origin.Source.Measures() && s.covers(s.seconds) {
			out = append(out, measured{trials.Slot{
				Number: s.number, Of: hashOf(string(s.origin.Source), string(s.origin.Scope)), Levers: s.levers,
				Watts: s.joules / s.seconds, Received: s.received / s.seconds, Sent: s.sent / s.seconds,
			}, s.payload / s.seconds})
		}
		return true
	})
	slices.SortFunc(out, func(x, y measured) int { return cmp.Compare(x.Number, y.Number) })
	return out
}

func hashOf(words ...string) uint32 {
	hash := fnv.New32a()
	for _, word := range words {
		_, _ = hash.Write(append([]byte(word), 0))
	}
	return hash.Sum32()
}

// node is one that is measured.
type node struct {
	stream stream.Stream
	// short are the slots of the node's own levers, long those of groups and HybridWorkloads.
	short, long cut
}

func newNode() *node {
	return &node{
		short: cut{Schedule: *model.NewSchedule(v1alpha1.LeverAffinity, "", model.TrialOneIn)},
		long:  cut{Schedule: *model.NewSchedule(v1alpha1.LeverTrafficShare, "", model.TrialOneIn)},
	}
}

// Recorder measures the slots of all nodes and groups. It is not safe for concurrent use.
type Recorder struct {
	nodes  map[string]*node
	groups map[string]*group
}

// NewRecorder returns a Recorder that knows no node.
func NewRecorder() *Recorder {
	return &Recorder{nodes: map[string]*node{}, groups: map[string]*group{}}
}

// Observe records what is known of a node, by the manager's clock, and returns the slots that end by
// it: the node's, and those of groups on it. It is called at least as often as rates and figures come;
// what was observed before counts once.
func (r *Recorder) Observe(name string, s Sample) []Measured {
	n := r.nodes[name]
	if n == nil {
		n = newNode()
		r.nodes[name] = n
	}
	step := n.stream.Observe(s.Sample)
	for i := range step.Intervals {
		n.short.add(&step.Intervals[i])
		n.long.add(&step.Intervals[i])
	}
	if step.Break != "" {
		n.short.at(step.At).bad, n.long.at(step.At).bad = true, true
		for _, open := range slices.Concat(n.short.open, n.long.open) {
			open.bad = open.bad || step.At.Before(open.to)
		}
	}
	if step.IsNew {
		n.check(step.At, &s)
	}
	now := s.Now.Add(n.stream.Ahead())
	var out []Measured
	for _, slot := range n.short.closed(n.stream.IsPast, now) {
		out = append(out, Measured{name, slot.Slot, n.short.StartOf(slot.Number + 1)})
	}
	for _, slot := range n.long.closed(n.stream.IsPast, now) {
		out = append(out, r.addToGroups(name, &slot)...)
	}
	return out
}

// check compares what the agent reports of its levers with what the schedules say.
func (n *node) check(at time.Time, s *Sample) {
	open := n.short.at(at)
	if at.Before(open.from) || !at.Before(open.to.Add(-late)) {
		return
	}
	levers := map[v1alpha1.Lever]int{}
	for i := range s.Schedules {
		schedule := &s.Schedules[i]
		code, ok := done(schedule, s.Rates.Switches, open)
		if open.bad = open.bad || !ok; ok {
			levers[schedule.Lever] = code
		}
	}
	open.recordLevers(levers)
}

// recordLevers records what levers did in the judged part, which is the same all the time.
func (s *slot) recordLevers(levers map[v1alpha1.Lever]int) {
	s.bad = s.bad || s.seen && !maps.Equal(s.levers, levers)
	s.seen, s.levers = true, levers
}

// done is what a lever did in a slot, as trials.Slot has it. False: not what its schedule says.
func done(s *model.Schedule, reported []model.Switch, in *slot) (code int, ok bool) {
	at := slices.IndexFunc(reported, func(t model.Switch) bool { return t.Lever == s.Lever })
	if at < 0 || reported[at].Seed != s.Seed || reported[at].OneIn != s.OneIn || reported[at].On != s.IsOn(in.number) || reported[at].Since.After(in.from.Add(late)) {
		return 0, false
	}
	if reported[at].On {
		return s.OneIn, true
	}
	return -s.OneIn, true
}

// Retain forgets all nodes but those given.
func (r *Recorder) Retain(names map[string]bool) {
	maps.DeleteFunc(r.nodes, func(name string, _ *node) bool { return !names[name] })
}

// group of VMs, or a HybridWorkload, which the manager switches itself.
type group struct {
	cut
	nodes, pods []string
	// gateways as they were observed last.
	gateways map[string]Gateway
	// measured are slots that not all nodes have ended.
	measured map[int64]map[string]measured
}

// GroupSample is what is known of a group or a HybridWorkload at one moment.
type GroupSample struct {
	// Schedule that switches it. Nil: none does.
	Schedule *model.Schedule
	// Done is what the manager did of it. Nil: all is not as any schedule has it.
	Done *model.Switch
	// Nodes that run members.
	Nodes []string
	// Pods that have to stay the same for a slot to count.
	Pods []string
	// Gateways of a HybridWorkload, by their pods, in the Service or not.
	Gateways map[string]Gateway
}

// Gateway is what a gateway has counted since its start.
type Gateway struct {
	// At is when it was asked. Zero: it did not say.
	At time.Time
	// Sent to clients, and Received from its VM, in bytes.
	Sent, Received float64
}

// count adds what a gateway did since it was asked before. What lies in two slots is left out.
func (g *group) count(pod string, now Gateway) {
	before := g.gateways[pod]
	if g.gateways[pod] = now; before.At.IsZero() || !now.At.After(before.At) {
		return
	}
	s := g.at(before.At)
	switch {
	case now.Sent < before.Sent || now.Received < before.Received: // it was restarted
		s.bad = true
	case s.gateways[pod] != nil && !before.At.Before(s.from) && !now.At.After(s.to):
		s.gateways[pod].bytes += now.Sent - before.Sent - (now.Received - before.Received)
		s.gateways[pod].seconds += now.At.Sub(before.At).Seconds()
	}
}

// ObserveGroup records what is known of a group or a HybridWorkload, in each of its rounds.
func (r *Recorder) ObserveGroup(name string, s GroupSample, now time.Time) {
	g := r.groups[name]
	if g == nil {
		schedule := model.NewSchedule(model.LeversOf(name)[0], name, model.TrialOneIn)
		g = &group{cut: cut{Schedule: *schedule}, measured: map[int64]map[string]measured{}, gateways: map[string]Gateway{}}
		r.groups[name] = g
	}
	nodes, pods := slices.Sorted(slices.Values(s.Nodes)), slices.Sorted(slices.Values(s.Pods))
	open := g.at(now)
	open.bad = open.bad || !slices.Equal(nodes, g.nodes) || !slices.Equal(pods, g.pods)
	g.nodes, g.pods = nodes, pods
	for pod, gateway := range s.Gateways {
		if open.gateways[pod] == nil {
			open.gateways[pod] = &served{}
		}
		g.count(pod, gateway)
	}
	maps.DeleteFunc(g.gateways, func(pod string, _ Gateway) bool { _, there := s.Gateways[pod]; return !there })
	if now.Before(open.from) || !now.Before(open.to.Add(-late)) {
		return
	}
	levers := map[v1alpha1.Lever]int{}
	if s.Schedule != nil {
		var reported []model.Switch
		if s.Done != nil {
			reported = append(reported, *s.Done)
		}
		code, ok := done(s.Schedule, reported, open)
		if open.bad = open.bad || !ok; ok {
			levers[g.Lever] = code
		}
	}
	open.recordLevers(levers)
}

// addToGroups adds a node's slot to its groups, and returns those that all nodes have ended.
func (r *Recorder) addToGroups(name string, s *measured) []Measured {
	var out []Measured
	for _, id := range slices.Sorted(maps.Keys(r.groups)) {
		g := r.groups[id]
		if !slices.Contains(g.nodes, name) {
			continue
		}
		if g.measured[s.Number] == nil {
			g.measured[s.Number] = map[string]measured{}
		}
		g.measured[s.Number][name] = *s
		if len(g.measured[s.Number]) < len(g.nodes) {
			continue
		}
		if slot, ok := g.sum(s.Number); ok {
			out = append(out, Measured{id, slot, g.StartOf(s.Number + 1)})
		}
		maps.DeleteFunc(g.measured, func(number int64, _ map[string]measured) bool { return number <= s.Number })
		g.open = slices.DeleteFunc(g.open, func(o *slot) bool { return o.number <= s.Number })
	}
	return out
}

// sum of a slot over all nodes. False: its levers were not as scheduled.
func (g *group) sum(number int64) (out trials.Slot, ok bool) {
	at := slices.IndexFunc(g.open, func(s *slot) bool { return s.number == number })
	if at < 0 || g.open[at].bad || !g.open[at].seen {
		return out, false
	}
	out.Number, out.Levers = number, g.open[at].levers
	payload := 0.
	var words []string
	for _, name := range g.nodes {
		one := g.measured[number][name]
		out.Watts += one.Watts
		out.Received += one.Received
		out.Sent += one.Sent
		payload += one.payload
		words = append(words, name, strconv.FormatUint(uint64(one.Of), 16))
	}
	out.Of = hashOf(words...)
	if g.Lever != v1alpha1.LeverOffload {
		return out, true
	}
	for _, gateway := range g.open[at].gateways {
		if !g.open[at].covers(gateway.seconds) {
			return out, false
		}
		payload += gateway.bytes / gateway.seconds
	}
	out.Received, out.Sent = max(0, payload), 0
	return out, true
}

// ForgetGroup drops a group that is no more.
func (r *Recorder) ForgetGroup(name string) { delete(r.groups, name) }
