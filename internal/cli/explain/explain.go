// Package explain says what was decided for a VM, a node or a group, by which inputs, what
// else there was, and why nothing is done where nothing is. It is a pure function of what was
// read.
package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/figures"
	"github.com/joulevirt/joulevirt/internal/cli/reasons"
	"github.com/joulevirt/joulevirt/internal/cli/savings"
	"github.com/joulevirt/joulevirt/internal/cli/show"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
)

// Explanation is a view of one VM, node or group.
type Explanation struct {
	metav1.TypeMeta `json:",inline"`
	// Subject is what is explained, as TYPE/NAME, and the namespace of it.
	Subject   string `json:"subject"`
	Namespace string `json:"namespace,omitempty"`
	// Inputs that the decisions were made by.
	Inputs []Input `json:"inputs"`
	// Decisions by lever.
	Decisions []Decision `json:"decisions"`
	// Shares of a group's members.
	Shares []v1alpha1.MemberShare `json:"shares,omitempty"`
	// Trials that switch levers on the node.
	Trials []Trial `json:"trials,omitempty"`
	// Withdrawn levers hurt.
	Withdrawn []v1alpha1.WithdrawnLever `json:"withdrawn,omitempty"`
	// Drawn is what the node, and the VM, draw now.
	Drawn []Drawn `json:"drawn,omitempty"`
	// NodeProven is what levers in force save on the node now, measured, and NodeBooked what
	// was saved there since the policy's ledger was begun.
	NodeProven []figures.LeverWatts `json:"nodeProven,omitempty"`
	NodeBooked []savings.Unit       `json:"nodeBooked,omitempty"`
	// Standings are what experiments showed on nodes or groups like this one, NodePotential
	// what levers could save on the node, modelled, and Potential on all nodes of the policy:
	// the alternatives.
	Standings     []v1alpha1.LeverTrial `json:"standings,omitempty"`
	NodePotential []figures.LeverWatts  `json:"nodePotential,omitempty"`
	Potential     []v1alpha1.Saving     `json:"potential,omitempty"`
	Gaps          []show.Gap            `json:"gaps,omitempty"`

	now time.Time
	// nodePotentials are what the policy's status tells of nodes.
	nodePotentials []v1alpha1.NodePotential
}

// Input is something that a decision was made by.
type Input struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Decision is what a lever does, and why.
type Decision struct {
	Lever  v1alpha1.Lever      `json:"lever"`
	State  v1alpha1.LeverState `json:"state"`
	Reason string              `json:"reason"`
	// VMs that it is so for. 0: the decision is of one VM, or of a group.
	VMs int `json:"vms,omitempty"`
	// Means is the reason in a sentence, Message what is told of this case, and Next what to do.
	Means   string `json:"means"`
	Message string `json:"message,omitempty"`
	Next    string `json:"next"`
	// Planned is what is to be done, and ReadBack what the kernel says of it.
	Planned  string `json:"planned,omitempty"`
	ReadBack string `json:"readBack,omitempty"`
}

// Trial is a schedule that switches a lever on a node.
type Trial struct {
	Lever v1alpha1.Lever `json:"lever"`
	// Block of Blocks that runs, from 1. 0: before the first, or after the last.
	Block  int `json:"block"`
	Blocks int `json:"blocks"`
	// On tells whether the lever is on now.
	On  bool        `json:"on"`
	End metav1.Time `json:"end"`
}

func newExplanation(kind, subject, namespace string, now time.Time) *Explanation {
	return &Explanation{
		TypeMeta: show.Kind(kind), Subject: subject, Namespace: namespace, Inputs: []Input{}, Decisions: []Decision{}, now: now,
	}
}

func (e *Explanation) input(name, value string) {
	if value != "" {
		e.Inputs = append(e.Inputs, Input{Name: name, Value: value})
	}
}

// decide adds a decision with the words for its reason.
func (e *Explanation) decide(d Decision) {
	why := reasons.All().Of(d.Reason)
	d.Means, d.Next = why.Means, why.Next
	e.Decisions = append(e.Decisions, d)
}

// addPolicy tells what the policy allows, and what experiments showed of its levers, as far as
// that is of the subject's own kind.
func (e *Explanation) addPolicy(policy *v1alpha1.EnergyPolicy, kin ofKind) {
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
		e.input("paused", "true: everything is undone")
	}
	for _, c := range policy.Status.Conditions {
		if c.Type == v1alpha1.ConditionChangesAllowed && c.Status == metav1.ConditionFalse {
			e.input("changes", c.Reason+": "+c.Message)
		}
	}
	for i := range policy.Status.Trials {
		if kin(&policy.Status.Trials[i]) {
			e.Standings = append(e.Standings, policy.Status.Trials[i])
		}
	}
	e.Potential, e.nodePotentials = policy.Status.Potential, policy.Status.PotentialNodes
}

// addTrials tells which levers are switched on the node, and where in that it is.
func (e *Explanation) addTrials(plan *v1alpha1.NodePlan) {
	by, _ := observe.Switched(plan)
	for i := range by {
		at := by[i].At(e.now)
		e.Trials = append(e.Trials, Trial{
			Lever: v1alpha1.Lever(by[i].Lever), Block: at.Block + 1, Blocks: len(by[i].On), On: at.On, End: metav1.NewTime(by[i].End()),
		})
	}
}

// addOptOut tells of the annotation that keeps levers away.
func (e *Explanation) addOptOut(whose string, object metav1.Object) {
	if object == nil {
		return
	}
	out := observe.OptOut(object)
	if out.All || len(out.Levers) > 0 {
		e.input("opt-out of "+whose, v1alpha1.AnnotationOptOut+": "+object.GetAnnotations()[v1alpha1.AnnotationOptOut]+unread(out))
	}
}

func unread(out model.OptOut) string {
	if out.Unreadable != "" {
		return " (not understood: it counts as true)"
	}
	return ""
}

// withdrawnOf are the levers that are withdrawn now from a VM, or from its whole node.
func withdrawnOf(plan *v1alpha1.NodePlan, podUID types.UID, now time.Time) []v1alpha1.WithdrawnLever {
	return slices.DeleteFunc(slices.Clone(plan.Spec.Withdrawn), func(w v1alpha1.WithdrawnLever) bool {
		over := w.Until != nil && !now.Before(w.Until.Time)
		return over || podUID != "" && w.PodUID != "" && w.PodUID != podUID
	})
}

// Names is the subject's.
func (e *Explanation) Names() []string { return []string{e.Subject} }

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
	return append([]show.Table{inputs}, slices.Concat(e.decisionTables(), e.energyTables(), e.contextTables())...)
}

func (e *Explanation) decisionTables() []show.Table {
	decided := show.Table{Heading: "What was decided:", Columns: show.Columns("LEVER", "STATE", "REASON", "VMS", "PLANNED", "READ-BACK")}
	for i := range e.Decisions {
		d := &e.Decisions[i]
		count := "1"
		if d.VMs > 0 {
			count = fmt.Sprint(d.VMs)
		}
		decided.Rows = append(decided.Rows, []string{string(d.Lever), show.Or(string(d.State)), d.Reason, count, show.Or(d.Planned), show.Or(d.ReadBack)})
	}
	shares := show.Table{Heading: "Shares of new traffic:", Columns: show.Columns("VM", "NODE", "READY", "PLANNED", "CARRIES", "REASON")}
	for i := range e.Shares {
		s := &e.Shares[i]
		carries := show.None
		if s.MeasuredPerMille != nil {
			carries = percent(*s.MeasuredPerMille)
		}
		shares.Rows = append(shares.Rows, []string{s.Name, show.Or(s.Node), fmt.Sprint(s.Ready), percent(s.PerMille), carries, s.Reason})
	}
	return []show.Table{decided, e.why(), shares}
}

// why gives the words for the decisions, for levers of which the same is to be said at once.
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

func percent(perMille int32) string {
	value := float64(perMille) / 10
	return show.Number(&value) + " %"
}

func (e *Explanation) contextTables() []show.Table {
	trials := show.Table{Heading: "Trials and hold-backs on the node:", Columns: show.Columns("LEVER", "NOW", "BLOCK", "ENDS-IN")}
	for _, t := range e.Trials {
		state := map[bool]string{true: "on", false: "off"}[t.On]
		trials.Rows = append(trials.Rows, []string{string(t.Lever), state, fmt.Sprintf("%d of %d", t.Block, t.Blocks), ahead(t.End.Time, e.now)})
	}
	withdrawn := show.Table{Heading: "Withdrawn, as they hurt:", Columns: show.Columns("LEVER", "SIGN", "FOR", "EVIDENCE")}
	for i := range e.Withdrawn {
		w := &e.Withdrawn[i]
		until := "as long as the alert is there"
		if w.Until != nil {
			until = ahead(w.Until.Time, e.now)
		}
		withdrawn.Rows = append(withdrawn.Rows, []string{string(w.Lever), strings.TrimSpace(string(w.Sign) + " " + w.Alert), until, show.Or(w.Message)})
	}
	standings := show.Table{Heading: "What experiments showed on nodes or groups of this kind:", Columns: show.Columns("LEVER", "STANCE", "SAVES-%", "INTERVAL", "UNITS", "PAIRS", "CLASS")}
	for i := range e.Standings {
		s := &e.Standings[i]
		saves, interval := show.None, show.None
		if s.SavedPercent != nil {
			saves, interval = string(s.SavedPercent.Value), string(s.SavedPercent.Low)+" to "+string(s.SavedPercent.High)
		}
		standings.Rows = append(standings.Rows, []string{string(s.Lever), string(s.Stance), saves, interval, fmt.Sprint(s.Units), fmt.Sprintf("%d of %d", s.Pairs, s.PlannedPairs), s.Class})
	}
	potential := show.Table{Heading: "What levers could save on all nodes of the policy (modelled):", Columns: show.Columns("LEVER", "WATTS", "INTERVAL")}
	for i := range e.Potential {
		s := &e.Potential[i]
		potential.Rows = append(potential.Rows, []string{string(s.Lever), watts(s.Milliwatts), watts(s.LowMilliwatts) + " to " + watts(s.HighMilliwatts)})
	}
	return []show.Table{trials, withdrawn, standings, e.foretoldOnNode(), potential}
}

func watts(milliwatts int64) string {
	v := float64(milliwatts) / 1000
	return show.Number(&v)
}

func ahead(at, now time.Time) string {
	return max(at.Sub(now), 0).Truncate(time.Second).String()
}
