// Package findings shows what wastes energy before any lever acts, as the statuses of policies have it.
package findings

import (
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/show"
)

// List has the findings of policies, the costliest of each first. It is a document for programs.
type List struct {
	metav1.TypeMeta `json:",inline"`
	Items           []Finding  `json:"items"`
	Gaps            []show.Gap `json:"gaps,omitempty"`
}

// Finding is one of a policy.
type Finding struct {
	Policy           string `json:"policy"`
	v1alpha1.Finding `json:",inline"`
}

// Of returns the findings of policies with some names; of all when none is given.
func Of(f *facts.Facts, names ...string) *List {
	out := &List{TypeMeta: show.Kind("FindingList"), Items: []Finding{}, Gaps: f.Gaps()}
	for i := range f.Policies {
		policy := &f.Policies[i]
		if len(names) > 0 && !slices.Contains(names, policy.Name) {
			continue
		}
		for _, finding := range policy.Status.Findings {
			out.Items = append(out.Items, Finding{policy.Name, finding})
		}
	}
	return out
}

// Tables shows a row for each finding.
func (l *List) Tables() []show.Table {
	table := show.Table{Columns: show.Columns("FINDING", "COUNT", "COST", "CHANGED-BY", "REMEDY", "+ON", "+SEEN", "+POLICY")}
	for i := range l.Items {
		f := &l.Items[i]
		table.Rows = append(table.Rows, []string{
			f.Reason, strconv.Itoa(int(f.Count)), cost(&f.Finding), string(f.ChangedBy), f.Remedy, show.Some(f.Objects), f.Message, f.Policy,
		})
	}
	return []show.Table{table}
}

// cost is watts with their basis, or CPU time.
func cost(f *v1alpha1.Finding) string {
	switch {
	case f.Watts != nil:
		return strconv.FormatInt(*f.Watts, 10) + " W " + string(f.Basis)
	case f.LostCores != "":
		return show.Number(ptr.To(f.LostCores.Float())) + " CPUs"
	}
	return "not known"
}
