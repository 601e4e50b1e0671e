package page

import (
	"context"
	"net/url"
	"strings"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/reasons"
	"github.com/joulevirt/joulevirt/internal/cli/show"
	"github.com/joulevirt/joulevirt/internal/cli/top"
)

// groupsAtOnce are sent at once: each has up to 50 shares.
const groupsAtOnce = 10

// groupView is how the traffic of a group is shared, and why.
type groupView struct {
	top.GroupEnergy
	Shares []v1alpha1.MemberShare `json:"shares"`
	Why    words                  `json:"why"`
}

// groupPart is a part of the groups.
type groupPart struct {
	part[groupView]
	Withdrawn []withdrawnGateway `json:"withdrawn,omitempty"`
	Gaps      []show.Gap         `json:"gaps,omitempty"`
}

// withdrawnGateway is a VM whose gateway was withdrawn because it harmed clients.
type withdrawnGateway struct {
	Namespace      string `json:"namespace"`
	HybridWorkload string `json:"hybridWorkload"`
	VM             string `json:"vm"`
	Node           string `json:"node"`
	Why            words  `json:"why"`
}

func (p *Page) groups(ctx context.Context, query url.Values) (any, error) {
	f, err := facts.Read(ctx, p.objects, p.Clock.Now(), facts.Scope{}, facts.Profiles, facts.Hybrids)
	if err != nil {
		return nil, err
	}
	if err := f.Need(facts.Profiles); err != nil {
		return nil, err
	}
	return viewGroups(f, query), nil
}

func viewGroups(f *facts.Facts, query url.Values) groupPart {
	find := strings.ToLower(text(query, "find"))
	profiles := map[string]*v1alpha1.VMNetworkProfile{}
	for i := range f.Profiles {
		profiles[f.Profiles[i].Namespace+"/"+f.Profiles[i].Name] = &f.Profiles[i]
	}
	list := top.Groups(f)
	found := list.Items[:0:0]
	for _, group := range list.Items {
		if strings.Contains(strings.ToLower(group.Namespace+"/"+group.Name), find) {
			found = append(found, group)
		}
	}
	rows := partOf(found, query, groupsAtOnce)
	table := reasons.All()
	out := groupPart{
		part:      part[groupView]{Items: []groupView{}, Total: rows.Total, From: rows.From, Size: rows.Size},
		Withdrawn: withdrawnGateways(f.Hybrids, table), Gaps: list.Gaps,
	}
	for _, group := range rows.Items {
		view := groupView{GroupEnergy: group, Shares: []v1alpha1.MemberShare{}, Why: wordsOf(table, group.Reason, "")}
		if t := profiles[group.Namespace+"/"+group.Name].Status.Traffic; t != nil {
			view.Why.Message = t.Message
			view.Shares = append(view.Shares, t.Shares...)
		}
		out.Items = append(out.Items, view)
	}
	return out
}

// withdrawnGateways returns the first page of the VMs whose gateways are withdrawn now.
func withdrawnGateways(hybrids []v1alpha1.HybridWorkload, table reasons.Table) []withdrawnGateway {
	var out []withdrawnGateway
	for i := range hybrids {
		h := &hybrids[i]
		for _, g := range h.Status.Gateways {
			if g.Reason == v1alpha1.ReasonGuardWithdrawn && len(out) < pageSize {
				out = append(out, withdrawnGateway{h.Namespace, h.Name, g.VM, g.Node, wordsOf(table, g.Reason, g.Message)})
			}
		}
	}
	return out
}
