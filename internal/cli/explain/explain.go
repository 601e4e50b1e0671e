// Package explain shows what was decided for a VM, a node or a group, from which inputs and why.
// An explanation is a pure function of the objects.
package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/reasons"
	"github.com/joulevirt/joulevirt/internal/cli/show"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/leverstate"
)

// Explanation is a view of one VM, node or group.
type Explanation struct {
	metav1.TypeMeta `json:",inline"`
	// Subject is what is explained, as TYPE/NAME, and Namespace the namespace of it.
	Subject   string `json:"subject"`
	Namespace string `json:"namespace,omitempty"`
	// Inputs of the decisions.
	Inputs []Input `json:"inputs"`
	// Decisions by lever.
	Decisions []Decision `json:"decisions"`
	// Shares of a group's members.
	Shares []v1alpha1.MemberShare `json:"shares,omitempty"`
	// Switched are the levers that trials switch on the node.
	Switched []Switched `json:"switched,omitempty"`
	// Withdrawn levers did harm.
	Withdrawn []v1alpha1.WithdrawnLever `json:"withdrawn,omitempty"`
	// Trials are verdicts of the policy's trials.
	Trials []v1alpha1.LeverTrial `json:"trials,omitempty"`
	Gaps   []show.Gap            `json:"gaps,omitempty"`

	now time.Time
}

// Input is something that a decision depends on.
type Input struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Decision is what a lever does, and why.
type Decision struct {
	Lever  v1alpha1.Lever      `json:"lever"`
	State  v1alpha1.LeverState `json:"state"`
	Reason string              `json:"reason"`
	// VMs with this decision. 0: it is about one VM, or about a group.
	VMs int `json:"vms,omitempty"`
	// Means is the reason in a sentence, Message the details of this case, and Next what to do.
	Means   string `json:"means"`
	Message string `json:"message,omitempty"`
	Next    string `json:"next"`
	// Planned is the action of the plan, and ReadBack what the kernel reports.
	Planned  string `json:"planned,omitempty"`
	ReadBack string `json:"readBack,omitempty"`
}

// Switched is a lever that a schedule switches on a node.
type Switched struct {
	Lever v1alpha1.Lever `json:"lever"`
	// OneIn is of how many slots one is off: 2 in a trial, more in a hold-back.
	OneIn int `json:"oneIn"`
	// On is true if the lever is on now.
	On  bool        `json:"on"`
	End metav1.Time `json:"end"`
}

func newExplanation(kind, subject, namespace string, now time.Time) *Explanation {
	return &Explanation{
		TypeMeta: show.Kind(kind), Subject: subject, Namespace: namespace, Inputs: []Input{}, Decisions: []Decision{}, now: now,
	}
}

// input adds an input, unless its value is empty.
func (e *Explanation) input(name, value string) {
	if value != "" {
		e.Inputs = append(e.Inputs, Input{Name: name, Value: value})
	}
}

// conditions adds those with one of some statuses. Empty types: all.
func (e *Explanation) conditions(all []metav1.Condition, status metav1.ConditionStatus, kinds ...string) {
	for _, c := range all {
		if c.Status == status && (len(kinds) == 0 || slices.Contains(kinds, c.Type)) {
			e.input(c.Type+" is "+string(c.Status), c.Reason+": "+c.Message)
		}
	}
}

// decide adds a decision with the sentences of its reason.
func (e *Explanation) decide(d Decision) {
	why := reasons.All().Of(d.Reason)
	d.Means, d.Next = why.Means, why.Next
	e.Decisions = append(e.Decisions, d)
}

// decideAll gives all levers of a node the same state.
func (e *Explanation) decideAll(state v1alpha1.LeverState, reason string) {
	for _, lever := range leverstate.Levers() {
		e.decide(Decision{Lever: lever, State: state, Reason: reason})
	}
}

// addPolicy adds what the policy allows, and the trials of some levers.
func (e *Explanation) addPolicy(policy *v1alpha1.EnergyPolicy, tried func(v1alpha1.Lever) bool) {
	if policy == nil {
		return
	}
	var levers []string
	for _, lever := range policy.Spec.Levers {
		levers = append(levers, string(lever))
	}
	e.input("policy", policy.Name)
	e.input("mode", string(policy.Spec.Mode))
	e.input("levers allowed", show.Or(strings.Join(levers, ", ")))
	if policy.Spec.Paused {
		e.input("paused", "true: everything is reverted")
	}
	e.conditions(policy.Status.Conditions, metav1.ConditionFalse, v1alpha1.ConditionChangesAllowed)
	for _, trial := range policy.Status.Trials {
		if tried(trial.Lever) {
			e.Trials = append(e.Trials, trial)
		}
	}
}

// addPlan adds the schedules that switch levers on the node, and levers that are withdrawn from
// a VM, or from any if podUID is empty.
func (e *Explanation) addPlan(plan *v1alpha1.NodePlan, podUID types.UID) {
	schedules, _ := observe.Switched(plan)
	for i := range schedules {
		at := schedules[i].At(e.now)
		e.Switched = append(e.Switched, Switched{
			Lever: schedules[i].Lever, OneIn: schedules[i].OneIn, On: at.On, End: metav1.NewTime(schedules[i].Next(e.now)),
		})
	}
	e.Withdrawn = slices.DeleteFunc(slices.Clone(plan.Spec.Withdrawn), func(w v1alpha1.WithdrawnLever) bool {
		return !e.now.Before(w.Until.Time) || podUID != "" && w.PodUID != "" && w.PodUID != podUID
	})
}

// addOptOut adds the opt-out annotation of an object.
func (e *Explanation) addOptOut(whose string, object metav1.Object) {
	out := observe.OptOut(object)
	if !out.All && len(out.Levers) == 0 {
		return
	}
	text := v1alpha1.AnnotationOptOut + ": " + object.GetAnnotations()[v1alpha1.AnnotationOptOut]
	if out.Unreadable != "" {
		text += " (not understood: it counts as true)"
	}
	e.input("opt-out of "+whose, text)
}

// Tables show the parts in the order in which one reads them.
func (e *Explanation) Tables() []show.Table {
	subject := e.Subject
	if e.Namespace != "" {
		subject += " in namespace " + e.Namespace
	}
	inputs := show.Table{Heading: subject, Columns: show.Columns("INPUT", "VALUE")}
	for _, input := range e.Inputs {
		inputs.Rows = append(inputs.Rows, []string{input.Name, input.Value})
	}
	decided := show.Table{Heading: "What was decided:", Columns: show.Columns("LEVER", "STATE", "REASON", "VMS", "PLANNED", "READ-BACK")}
	for i := range e.Decisions {
		d := &e.Decisions[i]
		decided.Rows = append(decided.Rows, []string{string(d.Lever), show.Or(string(d.State)), d.Reason, fmt.Sprint(max(d.VMs, 1)), show.Or(d.Planned), show.Or(d.ReadBack)})
	}
	shares := show.Table{Heading: "Shares of new traffic:", Columns: show.Columns("VM", "NODE", "PLANNED", "CARRIES", "REASON")}
	for i := range e.Shares {
		s := &e.Shares[i]
		carries := show.None
		if s.MeasuredPerMille != nil {
			carries = percent(*s.MeasuredPerMille)
		}
		shares.Rows = append(shares.Rows, []string{s.Name, show.Or(s.Node), percent(s.PerMille), carries, s.Reason})
	}
	switched := show.Table{Heading: "Trials and hold-backs on the node:", Columns: show.Columns("LEVER", "NOW", "OFF-SLOTS", "NEXT-SLOT-IN")}
	for _, t := range e.Switched {
		state := map[bool]string{true: "on", false: "off"}[t.On]
		switched.Rows = append(switched.Rows, []string{string(t.Lever), state, fmt.Sprintf("1 of %d", t.OneIn), until(t.End.Time, e.now)})
	}
	withdrawn := show.Table{Heading: "Withdrawn, because they did harm:", Columns: show.Columns("LEVER", "SIGN", "FOR", "EVIDENCE")}
	for i := range e.Withdrawn {
		w := &e.Withdrawn[i]
		withdrawn.Rows = append(withdrawn.Rows, []string{string(w.Lever), string(w.Sign), until(w.Until.Time, e.now), show.Or(w.Message)})
	}
	return []show.Table{inputs, decided, e.why(), shares, switched, withdrawn, e.trials()}
}

// why shows the sentences of the decisions; levers with the same ones share a row.
func (e *Explanation) why() show.Table {
	why := show.Table{Heading: "Why, and what to do:", Columns: show.Columns("LEVER", "WHY", "NEXT")}
	for i := range e.Decisions {
		d := &e.Decisions[i]
		words := strings.TrimSpace(d.Means + " " + d.Message)
		same := slices.IndexFunc(why.Rows, func(row []string) bool { return row[1] == words && row[2] == d.Next })
		if same < 0 {
			why.Rows = append(why.Rows, []string{string(d.Lever), words, d.Next})
			continue
		}
		why.Rows[same][0] += ", " + string(d.Lever)
	}
	return why
}

func (e *Explanation) trials() show.Table {
	table := show.Table{Heading: "Trials of the policy:", Columns: show.Columns("LEVER", "STANCE", "SAVES-%", "INTERVAL", "UNITS", "PAIRS", "CLASS")}
	for i := range e.Trials {
		s := &e.Trials[i]
		saves, interval := show.None, show.None
		if s.SavedPercent != nil {
			saves, interval = string(s.SavedPercent.Value), string(s.SavedPercent.Low)+" to "+string(s.SavedPercent.High)
		}
		table.Rows = append(table.Rows, []string{string(s.Lever), string(s.Stance), saves, interval, fmt.Sprint(s.Units), fmt.Sprintf("%d of %d", s.Pairs, s.PlannedPairs), s.Class})
	}
	return table
}

func percent(perMille int32) string {
	value := float64(perMille) / 10
	return show.Number(&value) + " %"
}

func until(at, now time.Time) string {
	return max(at.Sub(now), 0).Truncate(time.Second).String()
}
