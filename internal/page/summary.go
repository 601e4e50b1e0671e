package page

import (
	"context"
	"net/url"
	"time"

	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/show"
	"github.com/joulevirt/joulevirt/internal/cli/top"
)

// summary is what each view of the page needs.
type summary struct {
	Version string    `json:"version"`
	Now     time.Time `json:"now"`
	// Leads tells whether this manager leads: if not, it hears of no node by itself. Led
	// tells whether some manager does.
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
		gaps = append(gaps, show.Gap{Of: "Lease", Message: "whether a manager leads is not known: " + err.Error()})
	}
	return summary{
		Version: p.Version, Now: f.Now, Leads: p.Leads(), Led: led || err != nil,
		Policies: list.Items, Reports: len(f.Reports), Gaps: gaps,
	}, nil
}
