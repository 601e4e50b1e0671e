// Package trials decides by measured energy which levers act on which nodes, groups and HybridWorkloads: it judges
// what schedules bring that switch levers on and off at random, adopts and rejects levers, and
// keeps measuring what it adopted by a hold-back. It is pure: time is given, and nothing is asked
// for. docs/proof.md explains the procedure.
package trials

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/ledger"
	"github.com/joulevirt/joulevirt/internal/model"
)

// Unit is a node, a group of VMs or a HybridWorkload as it is in one round.
type Unit struct {
	// Name as model.LeversOf has it.
	Name string
	// CPUModel of a node: a trial covers all nodes of one model. Empty: it is tried alone.
	CPUModel string
	// Nodes that the levers of the unit affect: the node itself, or all that run VMs of the
	// group or HybridWorkload.
	Nodes []string
	// Metered is true when a meter measures all nodes. TooSlow says why its figures cannot judge a
	// slot. Empty: they can.
	Metered bool
	TooSlow string
	// Candidates are levers that the policy allows and that have something to do here, while
	// something new may be done here.
	Candidates []v1alpha1.Lever
	// Approved is true when a person decided what is done, by an approval or by asking for no
	// trials: levers act without a trial, and are held back.
	Approved bool
	// Stopped are levers that a guard stopped on the unit.
	Stopped map[v1alpha1.Lever]Stop
}

// Stop is when a guard stopped a lever, and what it saw.
type Stop struct {
	At       time.Time
	Evidence string
}

// unit is what is remembered of one.
type unit struct {
	CPUModel string   `json:"cpuModel,omitempty"`
	Nodes    []string `json:"nodes,omitempty"`
	Metered  bool     `json:"metered,omitempty"`
	TooSlow  string   `json:"tooSlow,omitempty"`
	Approved bool     `json:"approved,omitempty"`
	// Since is when it came, Seen when a round had it last.
	Since time.Time `json:"since"`
	Seen  time.Time `json:"seen"`
	// Alone are levers that are judged for this unit alone.
	Alone []v1alpha1.Lever `json:"alone,omitempty"`
	// Slots since the oldest trial began, or of the last stratum.
	Slots []Slot `json:"slots,omitempty"`
	// Past are the last strata of hold-backs.
	Past map[v1alpha1.Lever]*past `json:"past,omitempty"`
	// Moments of the logarithms of demand, joules and sent bytes, see slope.
	XX float64 `json:"xx,omitempty"`
	XY float64 `json:"xy,omitempty"`
	XS float64 `json:"xs,omitempty"`

	// levers that are tried on the unit.
	levers []v1alpha1.Lever
}

// State is how a lever stands on a set of units.
type State struct {
	Lever v1alpha1.Lever `json:"lever"`
	// CPUModel of the set's nodes, or the one Unit.
	CPUModel string       `json:"cpuModel,omitempty"`
	Unit     string       `json:"unit,omitempty"`
	Stance   model.Stance `json:"stance"`
	// Start is the first slot of the trial, Look the number of looks that were taken.
	Start int64 `json:"start,omitempty"`
	Look  int   `json:"look,omitempty"`
	// Effect by the last look. Nil: none was taken.
	Effect *Effect `json:"effect,omitempty"`
	// Decided is when the stance was decided, Until when a lever that is not used is tried anew.
	Decided time.Time `json:"decided,omitzero"`
	Until   time.Time `json:"until,omitzero"`
	// Rejections in a row. Each doubles the time until the next trial.
	Rejections int    `json:"rejections,omitempty"`
	Message    string `json:"message,omitempty"`
	Hold       hold   `json:"hold,omitzero"`
	// Stopped are units on which a guard stopped the lever in the trial.
	Stopped []string `json:"stopped,omitempty"`
}

// Set names the units.
func (s *State) Set() string {
	if s.Unit != "" {
		return "only " + s.Unit
	}
	return s.CPUModel
}

// Planned is the number of pairs after which a trial ends.
func (s *State) Planned() int {
	all := looks()
	return all[len(all)-1].pairs
}

// Measured is the effect by the hold-back or, while that says nothing, by the trial. False: neither
// says anything.
func (s *State) Measured() (ledger.Range, bool) {
	if held, ok := s.Hold.Joules.Effect(ledger.Confidence); ok {
		return held, true
	}
	if s.Effect == nil {
		return ledger.Range{}, false
	}
	return ledger.Range{Value: s.Effect.Log, Low: s.Effect.Low, High: s.Effect.High}, true
}

// key of a state.
type key struct {
	lever          v1alpha1.Lever
	cpuModel, unit string
}

// Trials of one policy. Make them with New, or by json.Unmarshal into the result of New. They are
// not safe for concurrent use.
type Trials struct {
	Units  map[string]*unit `json:"units"`
	States []*State         `json:"states"`
}

// New returns trials of which nothing is known.
func New() *Trials { return &Trials{Units: map[string]*unit{}} }

// Complete restores what is not stored. It is called after json.Unmarshal.
func (t *Trials) Complete() {
	if t.Units == nil {
		t.Units = map[string]*unit{}
	}
	for name, u := range t.Units {
		u.levers = model.LeversOf(name)
	}
}

// Event is what a round decided, with the reason that people read.
type Event struct {
	Reason  string
	Lever   v1alpha1.Lever
	Set     string
	Units   []string
	Message string
}

const (
	// coolDown is how long a lever is not tried after a trial without a verdict, or after its first
	// rejection; mostCoolDown is the longest time after several.
	coolDown, mostCoolDown = 24 * time.Hour, 30 * 24 * time.Hour
	// gone is how long a unit is remembered that no round has.
	gone = 24 * time.Hour
	// young is how long a unit that came after a lever was adopted has a larger hold-back.
	young = 24 * time.Hour
	// youngOneIn is that hold-back.
	youngOneIn = 5
	// patience is how many times longer than planned a trial may last.
	patience = 4
	// differs is the probability, over all units, below which one of them differs from the others.
	differs = 0.01
	// contradicted is the confidence of a hold-back that contradicts a verdict.
	contradicted = 0.99
)

// Record records a slot of a unit that was measured, and returns the strata of hold-backs that
// it completes, for the ledger.
func (t *Trials) Record(name string, slot Slot, now time.Time) []Stratum {
	u := t.Units[name]
	if u == nil {
		return nil
	}
	strata := u.record(slot)
	for i := range strata {
		stratum := &strata[i]
		before := u.Past[stratum.Lever]
		if before != nil {
			stratum.Before = before.with(before.Log)
		}
		if s := t.state(name, u, stratum.Lever); s != nil {
			s.Hold.add(name, stratum, before, now)
		}
		if u.Past == nil {
			u.Past = map[v1alpha1.Lever]*past{}
		}
		u.Past[stratum.Lever] = &past{stratum.Comparison, stratum.delivered, stratum.sent}
	}
	return strata
}

// keyOf is the set that a lever of a unit is judged with.
func (t *Trials) keyOf(name string, u *unit, lever v1alpha1.Lever) key {
	if u.CPUModel == "" || slices.Contains(u.Alone, lever) {
		return key{lever: lever, unit: name}
	}
	return key{lever: lever, cpuModel: u.CPUModel}
}

func (t *Trials) find(k key) *State {
	at := slices.IndexFunc(t.States, func(s *State) bool { return s.key() == k })
	if at < 0 {
		return nil
	}
	return t.States[at]
}

func (s *State) key() key { return key{s.Lever, s.CPUModel, s.Unit} }

// add a state of which nothing is decided.
func (t *Trials) add(k key) *State {
	s := &State{Lever: k.lever, CPUModel: k.cpuModel, Unit: k.unit, Stance: model.StanceAwaiting}
	t.States = append(t.States, s)
	slices.SortFunc(t.States, func(x, y *State) int {
		return cmp.Or(cmp.Compare(x.Lever, y.Lever), cmp.Compare(x.CPUModel, y.CPUModel), cmp.Compare(x.Unit, y.Unit))
	})
	return s
}

func (t *Trials) state(name string, u *unit, lever v1alpha1.Lever) *State {
	return t.find(t.keyOf(name, u, lever))
}

// members are the units of a state, in the order of their names.
func (t *Trials) members(s *State) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(t.Units)) {
		if u := t.Units[name]; slices.Contains(u.levers, s.Lever) && t.keyOf(name, u, s.Lever) == s.key() {
			names = append(names, name)
		}
	}
	return names
}

// Round decides for the units that the policy has now. Equal inputs decide equally. Call it each
// 15 to 60 s with all units of the policy.
func (t *Trials) Round(units []Unit, now time.Time) []Event {
	var events []Event
	for i := range units {
		t.observe(&units[i], now)
	}
	maps.DeleteFunc(t.Units, func(_ string, u *unit) bool { return now.Sub(u.Seen) > gone })
	t.States = slices.DeleteFunc(t.States, func(s *State) bool { return len(t.members(s)) == 0 })
	for i := range units {
		for _, lever := range units[i].Candidates {
			events = append(events, t.start(&units[i], lever, now)...)
		}
	}
	for i := range units {
		for _, lever := range slices.Sorted(maps.Keys(units[i].Stopped)) {
			events = append(events, t.stop(units[i].Name, lever, units[i].Stopped[lever], now)...)
		}
	}
	for _, s := range slices.Clone(t.States) {
		events = append(events, t.decide(s, now)...)
	}
	for _, u := range t.Units {
		u.trim(t.oldest(u))
	}
	return events
}

// observe updates what is remembered of a unit.
func (t *Trials) observe(in *Unit, now time.Time) {
	u := t.Units[in.Name]
	if u == nil {
		u = &unit{Since: now, levers: model.LeversOf(in.Name)}
		t.Units[in.Name] = u
	}
	if u.CPUModel != in.CPUModel {
		u.Alone, u.Slots = nil, nil
	}
	u.CPUModel, u.Nodes, u.Metered, u.TooSlow, u.Approved, u.Seen = in.CPUModel, in.Nodes, in.Metered, in.TooSlow, in.Approved, now
}

// oldest slot that a trial of the unit needs.
func (t *Trials) oldest(u *unit) int64 {
	oldest := int64(math.MaxInt64)
	for _, s := range t.States {
		if s.Stance == model.StanceOnTrial && slices.Contains(u.levers, s.Lever) {
			oldest = min(oldest, s.Start)
		}
	}
	return oldest
}

// start begins the trial of a lever that has something to do on a unit.
func (t *Trials) start(in *Unit, lever v1alpha1.Lever, now time.Time) []Event {
	u := t.Units[in.Name]
	if !slices.Contains(u.levers, lever) {
		return nil
	}
	k := t.keyOf(in.Name, u, lever)
	s := t.find(k)
	if s == nil {
		s = t.add(k)
	}
	if s.Stance != model.StanceAwaiting || !in.Metered || in.TooSlow != "" || in.Approved {
		return nil
	}
	s.begin(now)
	return []Event{s.event(v1alpha1.ReasonTrialStarted, t.members(s), "it is switched on and off at random, in slots of "+slotWords(lever))}
}

func slotWords(lever v1alpha1.Lever) string {
	return fmt.Sprintf("%.0f minutes", model.NewSchedule(lever, "", model.TrialOneIn).Slot.Minutes())
}

// begin a trial with the next pair.
func (s *State) begin(now time.Time) {
	schedule := model.NewSchedule(s.Lever, "", model.TrialOneIn)
	s.Stance, s.Decided, s.Until, s.Effect, s.Look, s.Stopped, s.Hold = model.StanceOnTrial, now, time.Time{}, nil, 0, nil, hold{}
	s.Start = 2 * (schedule.Stratum(schedule.SlotAt(now)) + 1)
	s.Message = fmt.Sprintf("the first look is after %d pairs of slots", looks()[0].pairs)
}

func (s *State) event(reason string, units []string, message string) Event {
	return Event{Reason: reason, Lever: s.Lever, Set: s.Set(), Units: units, Message: message}
}

// finish decides a state.
func (s *State) finish(stance model.Stance, now time.Time, message string) {
	s.Stance, s.Decided, s.Until, s.Message, s.Hold = stance, now, time.Time{}, message, hold{}
	switch stance {
	case model.StanceAdopted:
		s.Rejections = 0
	case model.StanceRejected:
		s.Until = now.Add(min(coolDown<<min(s.Rejections, 10), mostCoolDown))
		s.Rejections++
	case model.StanceUndecided:
		s.Until = now.Add(coolDown)
	}
}

// stop ends the trial of a lever on a unit that it hurts, or, when it hurts on half of the units,
// on all.
func (t *Trials) stop(name string, lever v1alpha1.Lever, stop Stop, now time.Time) []Event {
	u := t.Units[name]
	s := t.state(name, u, lever)
	if s == nil || s.Stance != model.StanceOnTrial || !stop.At.After(s.Decided) || slices.Contains(s.Stopped, name) {
		return nil
	}
	s.Stopped = append(s.Stopped, name)
	message := "a guard stopped it: " + stop.Evidence
	if members := t.members(s); 2*len(s.Stopped) >= len(members)+len(s.Stopped)-1 {
		s.finish(model.StanceRejected, now, message)
		return []Event{s.event(v1alpha1.ReasonRejectedByTrial, members, message)}
	}
	alone := t.separate(name, s)
	alone.finish(model.StanceRejected, now, message)
	return []Event{alone.event(v1alpha1.ReasonRejectedByTrial, []string{name}, message)}
}

// separate takes a unit out of a set. What it measured so far stays with neither.
func (t *Trials) separate(name string, s *State) *State {
	u := t.Units[name]
	u.Alone = append(u.Alone, s.Lever)
	return t.add(key{lever: s.Lever, unit: name})
}

// decide takes what is due of a state: a look, the end of a cool-down, or a comparison of the
// hold-back with the verdict.
func (t *Trials) decide(s *State, now time.Time) []Event {
	members := t.members(s)
	approved := slices.ContainsFunc(members, func(name string) bool { return t.Units[name].Approved })
	switch {
	case s.Stance == model.StanceOnTrial && approved:
		s.Stance = model.StanceAwaiting
	case s.Stance == model.StanceOnTrial:
		return t.look(s, members, now)
	case s.Stance == model.StanceAdopted, approved && s.Stance == model.StanceAwaiting:
		return t.compareHeld(s, members, now)
	case !s.Until.IsZero() && !now.Before(s.Until):
		s.Stance, s.Until = model.StanceAwaiting, time.Time{}
		return []Event{s.event(v1alpha1.ReasonLeverRetried, members, "its cool-down is over")}
	}
	return nil
}

// compareHeld tries a lever anew whose hold-back contradicts its verdict, and rejects one that
// loses work or, without a verdict, costs energy.
func (t *Trials) compareHeld(s *State, members []string, now time.Time) []Event {
	for _, guard := range []struct {
		sum  *ledger.Sum
		what string
	}{{&s.Hold.Delivered, "VMs' bytes"}, {&s.Hold.Sent, "bytes that VMs send for the same demand"}} {
		if lost, ok := guard.sum.Effect(contradicted); ok && lost.High < 0 && lost.Value < leastLoss {
			message := fmt.Sprintf("by its hold-back it loses work: %s change by %+.1f %%", guard.what, 100*math.Expm1(lost.Value))
			s.finish(model.StanceRejected, now, message)
			return []Event{s.event(v1alpha1.ReasonRejectedByTrial, members, message)}
		}
	}
	held, ok := s.Hold.Joules.Effect(contradicted)
	switch {
	case !ok:
		return nil
	case s.Stance != model.StanceAdopted && held.Low > 0:
		message := "by its hold-back it costs energy: " + percentWords(held)
		s.finish(model.StanceRejected, now, message)
		return []Event{s.event(v1alpha1.ReasonRejectedByTrial, members, message)}
	case s.Stance == model.StanceAdopted && s.Effect != nil && (held.High < s.Effect.Low || held.Low > s.Effect.High):
		message := fmt.Sprintf("its hold-back contradicts the verdict: it %s", percentWords(held))
		s.Stance, s.Hold = model.StanceAwaiting, hold{}
		return []Event{s.event(v1alpha1.ReasonLeverRetried, members, message)}
	case s.Stance == model.StanceAdopted && s.Effect != nil && len(members) >= leastOdd:
		return t.separateHeld(s, members, now)
	}
	return nil
}

// separateHeld takes a unit out of an adopted set whose hold-back contradicts the verdict. It is
// tried alone.
func (t *Trials) separateHeld(s *State, members []string, now time.Time) []Event {
	confidence := 1 - differs/float64(len(members))
	for _, name := range members {
		sum := s.Hold.Units[name]
		if sum == nil || !t.Units[name].Metered {
			continue
		}
		if own, ok := sum.Effect(confidence); ok && (own.High < s.Effect.Low || own.Low > s.Effect.High) {
			s.Hold = hold{}
			return t.tryAlone(s, name, "by its hold-back its effect here differs: "+percentWords(own), now)
		}
	}
	return nil
}

// tryAlone begins a trial of one unit of a set.
func (t *Trials) tryAlone(s *State, name, message string, now time.Time) []Event {
	alone := t.separate(name, s)
	alone.begin(now)
	return []Event{alone.event(v1alpha1.ReasonTrialStarted, []string{name}, message)}
}

// look judges a trial when it has the pairs of its next look.
func (t *Trials) look(s *State, members []string, now time.Time) []Event {
	rows, lever, levers := t.rows(s, members)
	with := map[string]int{}
	for i := range rows {
		with[rows[i].unit]++
	}
	due := -1
	for at, l := range looks() {
		if at >= s.Look && len(with) > 0 && len(rows) >= l.pairs*len(with) {
			due = at
		}
	}
	if due < 0 {
		return t.expire(s, members, now)
	}
	if due > 0 {
		if events := t.separateOdd(s, rows, lever, levers, with, now); events != nil {
			return events // The others are judged in the next round.
		}
	}
	s.Look = due + 1
	v, ok := judge(rows, lever, levers, due)
	if !ok {
		v = verdict{message: "too little is known to judge it"}
		if s.Look == len(looks()) {
			v.Decision = Undecided
		}
	} else {
		v.Pairs, v.Units = len(rows)/len(with), len(with)
		s.Effect = &v.Effect
		v.message = strings.TrimSuffix(v.words()+"; "+v.message, "; ")
	}
	names := slices.Sorted(maps.Keys(with))
	switch v.Decision {
	case Adopt:
		s.finish(model.StanceAdopted, now, v.message)
		return []Event{s.event(v1alpha1.ReasonLeverAdopted, names, v.message)}
	case Reject, LosesWork:
		s.finish(model.StanceRejected, now, v.message)
		return []Event{s.event(v1alpha1.ReasonRejectedByTrial, names, v.message)}
	case Undecided:
		s.finish(model.StanceUndecided, now, v.message)
		return []Event{s.event(v1alpha1.ReasonTrialUndecided, names, v.message)}
	}
	s.Message = fmt.Sprintf("%s; the next look is after %d pairs", v.message, looks()[s.Look].pairs)
	return nil
}

// rows of all members, with the column of the state's lever and the number of columns. A lever that
// never changed in a pair has no column.
func (t *Trials) rows(s *State, members []string) (rows []row, lever, columns int) {
	var all []v1alpha1.Lever
	for _, name := range members {
		all = t.Units[name].levers // the same for all
		rows = append(rows, t.Units[name].rows(name, s.Lever, s.Start, all)...)
	}
	var keep []int
	for at, one := range all {
		if slices.ContainsFunc(rows, func(r row) bool { return r.signs[at] != 0 }) {
			if one == s.Lever {
				lever = len(keep)
			}
			keep = append(keep, at)
		}
	}
	for i := range rows {
		signs := make([]float64, len(keep))
		for to, from := range keep {
			signs[to] = rows[i].signs[from]
		}
		rows[i].signs = signs
	}
	return rows, lever, len(keep)
}

// expire ends a trial that has had time enough.
func (t *Trials) expire(s *State, members []string, now time.Time) []Event {
	slot := model.NewSchedule(s.Lever, "", model.TrialOneIn).Slot
	if longest := patience * 2 * time.Duration(s.Planned()) * slot; now.Sub(s.Decided) < longest {
		return nil
	}
	message := "too few pairs of slots could be measured: see condition MeterAvailable, and what agents log"
	if s.Effect != nil {
		message = s.Effect.words() + "; " + message
	}
	s.finish(model.StanceUndecided, now, message)
	return []Event{s.event(v1alpha1.ReasonTrialUndecided, members, message)}
}

// leastOdd is how many units there are at least when one of them may differ from the others.
const leastOdd = 3

// separateOdd takes the unit out of a trial that differs most, if it differs. It is tried alone.
func (t *Trials) separateOdd(s *State, rows []row, lever, levers int, with map[string]int, now time.Time) []Event {
	if len(with) < leastOdd {
		return nil
	}
	thetas, slope, ok := regress(rows, levers, func(r *row) float64 { return r.joules }, func(r *row) float64 { return r.demand }, true)
	if !ok {
		return nil
	}
	odd, least := "", differs/float64(len(with))
	for _, name := range slices.Sorted(maps.Keys(with)) {
		if with[name] <= leastFreedom {
			continue
		}
		var own []float64
		for i := range rows {
			if r := &rows[i]; r.unit == name {
				rest := r.joules - slope*r.demand
				for l := range thetas {
					rest -= thetas[l].log * r.signs[l]
				}
				own = append(own, rest*r.signs[lever])
			}
		}
		if p := differing(own); p < least {
			odd, least = name, p
		}
	}
	if odd == "" {
		return nil
	}
	return t.tryAlone(s, odd, "its effect here differs from that on the other nodes", now)
}

// differing is the two-sided probability of a mean this far from 0.
func differing(all []float64) float64 {
	n, sum, squares := float64(len(all)), 0.0, 0.0
	for _, x := range all {
		sum += x
	}
	for _, x := range all {
		squares += (x - sum/n) * (x - sum/n)
	}
	e := estimate{log: -math.Abs(sum / n), stdErr: math.Sqrt(squares / (n - 1) / n), freedom: len(all) - 1}
	if e.stdErr == 0 {
		return 1
	}
	return 2 * e.below(0)
}

// words of an effect, for people.
func (e *Effect) words() string {
	pairs := "pairs"
	units := "units"
	if e.Pairs == 1 {
		pairs = "pair"
	}
	if e.Units == 1 {
		units = "unit"
	}
	return fmt.Sprintf("%s, by %d %s of slots on each of %d %s", percentWords(ledger.Range{Value: e.Log, Low: e.Low, High: e.High}), e.Pairs, pairs, e.Units, units)
}

// percentWords say by how many percent joules for the same work change.
func percentWords(log ledger.Range) string {
	percent := func(x float64) float64 { return 100 * math.Expm1(x) }
	return fmt.Sprintf("joules for the same work change by %+.2f %% (95 %%: %+.2f to %+.2f)", percent(log.Value), percent(log.Low), percent(log.High))
}

// Of returns how each lever stands on a unit, in the order of the levers' names. holdBack is the
// share of time in which an adopted lever is off. False: the unit is not known.
func (t *Trials) Of(name string, holdBack float64, now time.Time) ([]model.Proof, bool) {
	u := t.Units[name]
	if u == nil {
		return nil, false
	}
	proofs := make([]model.Proof, 0, len(u.levers))
	for _, lever := range u.levers {
		proofs = append(proofs, t.proof(name, u, lever, holdBack, now))
	}
	return proofs, true
}

func (t *Trials) proof(name string, u *unit, lever v1alpha1.Lever, holdBack float64, now time.Time) model.Proof {
	p := model.Proof{Lever: lever, Stance: model.StanceAwaiting}
	s := t.state(name, u, lever)
	if s == nil {
		s = &State{Lever: lever, Stance: model.StanceAwaiting}
	}
	p.Message = s.Message
	held := func(oneIn int) *model.Schedule {
		if oneIn == 0 {
			return nil
		}
		return model.NewSchedule(lever, name, oneIn)
	}
	switch {
	case s.Stance == model.StanceRejected:
		p.Stance, p.Until = s.Stance, s.Until
	case u.Approved:
		p.Stance, p.Use, p.Schedule, p.Message = model.StanceUnproven, true, held(oneIn(holdBack)), "it acts without a trial; what is held back shows what it saves"
		if effect, ok := s.Hold.Joules.Effect(ledger.Confidence); ok && effect.High < 0 {
			p.Stance, p.Message = model.StanceAdopted, "what was held back shows that it saves"
		}
	case !u.Metered:
		p.Stance, p.Use, p.Message = model.StanceUnproven, true, "no meter measures what it saves here"
	case s.Stance == model.StanceOnTrial:
		p.Stance, p.Use, p.Schedule = s.Stance, true, model.NewSchedule(lever, name, model.TrialOneIn)
	case s.Stance == model.StanceAdopted:
		n := oneIn(holdBack)
		if n > youngOneIn && u.Since.After(s.Decided) && now.Sub(u.Since) < young {
			n = youngOneIn
		}
		p.Stance, p.Use, p.Schedule = s.Stance, true, held(n)
	case s.Stance == model.StanceUndecided:
		p.Stance, p.Until = s.Stance, s.Until
	case u.TooSlow != "":
		p.Message = u.TooSlow
	default:
		p.Message = "it is tried once it has something to do here and nothing holds changes back"
	}
	return p
}

// oneIn is the stratum of a hold-back of a share of time. 0: nothing is held back.
func oneIn(share float64) int {
	if !(share > 0) {
		return 0
	}
	return min(max(int(math.Round(1/share)), model.TrialOneIn+1), model.MostOneIn)
}

// Known is what is remembered of a unit. False: nothing is.
func (t *Trials) Known(name string) (Unit, bool) {
	u := t.Units[name]
	if u == nil {
		return Unit{}, false
	}
	return Unit{Name: name, CPUModel: u.CPUModel, Nodes: u.Nodes, Metered: u.Metered, TooSlow: u.TooSlow, Approved: u.Approved}, true
}

// Members are the units of a state, in the order of their names.
func (t *Trials) Members(s *State) []Unit {
	var units []Unit
	for _, name := range t.members(s) {
		u, _ := t.Known(name)
		units = append(units, u)
	}
	return units
}
