// Package change works out what kubectl joulevirt writes: a few fields of an EnergyPolicy's
// spec, by a patch. One that was worked out from what a field held before fails when somebody
// else changed the policy in between.
package change

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/access"
	"github.com/joulevirt/joulevirt/internal/cli/show"
)

// Change is what is to be written to a policy.
type Change struct {
	Policy *v1alpha1.EnergyPolicy
	// Fields of spec with their new values, nil to remove one. Empty: nothing is to be written.
	Fields map[string]any
	// Exact is true when Fields were worked out from what they held before.
	Exact bool
	// Done says what was done, once it is written.
	Done string
}

// Patch is a JSON merge patch. That of an exact change names the version of the policy that it
// was worked out by.
func (c Change) Patch() ([]byte, error) {
	patch := map[string]any{"spec": c.Fields}
	if c.Exact {
		patch["metadata"] = map[string]any{"resourceVersion": c.Policy.ResourceVersion}
	}
	return json.Marshal(patch)
}

// OwnedBy names who else applies a field that the change writes, and will put it back. Empty:
// nobody.
func (c Change) OwnedBy() (manager, field string) {
	for _, entry := range c.Policy.ManagedFields {
		if entry.Operation != "Apply" || entry.Manager == access.FieldOwner || entry.FieldsV1 == nil {
			continue
		}
		var owned struct {
			Spec map[string]json.RawMessage `json:"f:spec"`
		}
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned); err != nil {
			continue // not ours to judge
		}
		for name := range c.Fields {
			if _, its := owned.Spec["f:"+name]; its {
				return entry.Manager, "spec." + name
			}
		}
	}
	return "", ""
}

func find(policies []v1alpha1.EnergyPolicy, name string) *v1alpha1.EnergyPolicy {
	at := slices.IndexFunc(policies, func(p v1alpha1.EnergyPolicy) bool { return p.Name == name })
	if at < 0 {
		return nil
	}
	return &policies[at]
}

// Pause returns what to write so that policies, by name, are paused, or are no longer.
func Pause(policies []v1alpha1.EnergyPolicy, names []string, paused bool) ([]Change, error) {
	var changes []Change
	for _, name := range names {
		policy := find(policies, name)
		if policy == nil {
			return nil, fmt.Errorf("there is no EnergyPolicy %q: %s", name, existing(policies))
		}
		change := Change{Policy: policy, Done: map[bool]string{true: "paused", false: "resumed"}[paused]}
		switch {
		case policy.Spec.Paused == paused:
			change.Done = map[bool]string{true: "unchanged: it is paused already", false: "unchanged: it is not paused"}[paused]
		case paused:
			change.Fields = map[string]any{"paused": true}
		default:
			change.Fields = map[string]any{"paused": nil}
		}
		changes = append(changes, change)
	}
	return changes, nil
}

func existing(policies []v1alpha1.EnergyPolicy) string {
	if len(policies) == 0 {
		return "there is none"
	}
	var names []string
	for i := range policies {
		names = append(names, policies[i].Name)
	}
	return "there are " + show.Some(names)
}
