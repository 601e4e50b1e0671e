package page

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/access"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/moves"
	"github.com/joulevirt/joulevirt/internal/cli/reasons"
	"github.com/joulevirt/joulevirt/internal/cli/savings"
	"github.com/joulevirt/joulevirt/internal/cli/show"
	"github.com/joulevirt/joulevirt/internal/cli/top"
)

// summary is what each view of the page needs.
type summary struct {
	Version string    `json:"version"`
	Now     time.Time `json:"now"`
	// Leads is true if this manager leads: only a leader has rates of nodes. Led is true if some
	// manager leads.
	Leads bool `json:"leads"`
	Led   bool `json:"led"`
	// Policies by name, and the number of nodes whose agents reported.
	Policies []top.PolicyEnergy `json:"policies"`
	Reports  int                `json:"reports"`
	Gaps     []show.Gap         `json:"gaps,omitempty"`
}

func (p *Page) summary(ctx context.Context, _ url.Values) (any, error) {
	f, err := facts.Read(ctx, p.objects, p.Clock.Now(), facts.Scope{}, facts.Policies, facts.Reports)
	if err != nil {
		return nil, err
	}
	list := top.Policies(f)
	led, err := p.Led(ctx)
	gaps := list.Gaps
	if err != nil {
		gaps = append(gaps, show.Gap{Of: "Lease", Message: "whether a manager leads is unknown: " + err.Error()})
	}
	return summary{
		Version: p.Version, Now: f.Now, Leads: p.Leads(), Led: led || err != nil,
		Policies: list.Items, Reports: len(f.Reports), Gaps: gaps,
	}, nil
}

// policyView is all that the page shows of one policy.
type policyView struct {
	Energy top.PolicyEnergy `json:"energy"`
	Levers []v1alpha1.Lever `json:"levers"`
	// Proven is what all levers together save of what the metered nodes draw. Nil: nothing
	// is proven.
	Proven *saving `json:"proven,omitempty"`
	// Savings were booked, or are proven or predicted now.
	Savings    savings.Policy        `json:"savings"`
	Sources    []source              `json:"sources"`
	Conditions []condition           `json:"conditions"`
	Trials     []v1alpha1.LeverTrial `json:"trials"`
	Coverage   []coverage            `json:"coverage"`
	Findings   []v1alpha1.Finding    `json:"findings"`
	// Moves of VMs by lever Placement. Nil: the policy does not allow it.
	Moves *movesView `json:"moves,omitempty"`
}

// movesView is what is planned, and why VMs are moved now or not.
type movesView struct {
	*moves.PlannedMoves
	Why words `json:"why"`
}

// words are a reason with its sentence and what to do.
type words struct {
	Reason  string `json:"reason,omitempty"`
	Means   string `json:"means,omitempty"`
	Message string `json:"message,omitempty"`
	Next    string `json:"next,omitempty"`
}

func wordsOf(table reasons.Table, reason, message string) words {
	if reason == "" {
		return words{Message: message}
	}
	why := table.Of(reason)
	return words{Reason: reason, Means: why.Means, Message: message, Next: why.Next}
}

// source of energy of a policy.
type source struct {
	Type      v1alpha1.PowerSource `json:"type"`
	Available bool                 `json:"available"`
	Nodes     int32                `json:"nodes"`
	words
}

// condition of a policy.
type condition struct {
	Type   string                 `json:"type"`
	Status metav1.ConditionStatus `json:"status"`
	Since  metav1.Time            `json:"since"`
	words
}

// coverage is how many VMs a lever reaches, and why not the rest.
type coverage struct {
	Lever      v1alpha1.Lever `json:"lever"`
	VMs        int32          `json:"vms"`
	ReachedVMs int32          `json:"reachedVMs"`
	// ReachedBytesPercent of all VMs' traffic. Nil: unknown.
	ReachedBytesPercent *int32   `json:"reachedBytesPercent,omitempty"`
	Missed              []missed `json:"missed"`
}

// missed are VMs that a lever does not reach for one reason.
type missed struct {
	Count int32 `json:"count"`
	words
}

func (p *Page) policy(ctx context.Context, query url.Values) (any, error) {
	name := query.Get("name")
	var policy v1alpha1.EnergyPolicy
	if err := p.objects.Get(ctx, "", name, &policy); err != nil {
		return nil, err
	}
	view := viewPolicy(&policy)
	var plan v1alpha1.PlacementPlan
	switch err := p.objects.Get(ctx, "", name, &plan); {
	case err == nil:
		planned := moves.Of(&plan, p.Clock.Now())
		view.Moves = &movesView{planned, wordsOf(reasons.All(), cmp.Or(planned.Allowed, planned.Reason), planned.Message)}
	case !access.Is(err, access.NotFound):
		return nil, err
	}
	return view, nil
}

func viewPolicy(policy *v1alpha1.EnergyPolicy) policyView {
	table := reasons.All()
	view := policyView{
		Energy: top.PolicyOf(policy), Savings: savings.OfPolicy(policy), Proven: proven(policy),
		Levers: append([]v1alpha1.Lever{}, policy.Spec.Levers...), Trials: append([]v1alpha1.LeverTrial{}, policy.Status.Trials...),
		Findings: append([]v1alpha1.Finding{}, policy.Status.Findings...),
		Sources:  []source{}, Conditions: []condition{}, Coverage: []coverage{},
	}
	for _, s := range policy.Status.EnergySources {
		view.Sources = append(view.Sources, source{Type: s.Type, Available: s.Nodes > 0, Nodes: s.Nodes, words: wordsOf(table, s.Reason, s.Message)})
	}
	for _, c := range policy.Status.Conditions {
		view.Conditions = append(view.Conditions, condition{Type: c.Type, Status: c.Status, Since: c.LastTransitionTime, words: wordsOf(table, c.Reason, c.Message)})
	}
	for _, c := range policy.Status.Coverage {
		out := coverage{Lever: c.Lever, VMs: c.ReachedVMs, ReachedVMs: c.ReachedVMs, ReachedBytesPercent: c.ReachedBytesPercent, Missed: []missed{}}
		for _, why := range c.Reasons {
			out.VMs += why.Count
			out.Missed = append(out.Missed, missed{Count: why.Count, words: wordsOf(table, why.Reason, "")})
		}
		slices.SortStableFunc(out.Missed, func(x, y missed) int { return cmp.Compare(y.Count, x.Count) })
		view.Coverage = append(view.Coverage, out)
	}
	return view
}
