// Package change computes what kubectl joulevirt writes: a few fields of an EnergyPolicy's spec,
// as a patch. A patch that depends on a field's earlier value fails if somebody else changed the
// policy in between.
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
	// Exact is true if Fields depend on their earlier values.
	Exact bool
	// Done says what was done, once it is written.
	Done string
}

// Patch is a JSON merge patch. That of an exact change names the resource version.
func (c Change) Patch() ([]byte, error) {
	patch := map[string]any{"spec": c.Fields}
	if c.Exact {
		patch["metadata"] = map[string]any{"resourceVersion": c.Policy.ResourceVersion}
	}
	return json.Marshal(patch)
}

// OwnedBy returns another field manager that applies a field of the change, and so will
// overwrite it, and the field. Empty: there is none.
func (c Change) OwnedBy() (manager, field string) {
	for _, entry := range c.Policy.ManagedFields {
		if entry.Operation != "Apply" || entry.Manager == access.FieldOwner || entry.FieldsV1 == nil {
			continue
		}
		var owned struct {
			Spec map[string]json.RawMessage `json:"f:spec"`
		}
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned); err != nil {
			continue // not in a form that can be read
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

// Pause returns the changes that pause policies, by name, or resume them.
func Pause(policies []v1alpha1.EnergyPolicy, names []string, paused bool) ([]Change, error) {
	var changes []Change
	for _, name := range names {
		policy := find(policies, name)
		if policy == nil {
			return nil, fmt.Errorf("there is no EnergyPolicy %q: %s", name, existing(policies))
		}
		change := Change{Policy: policy}
		switch {
		case policy.Spec.Paused && paused:
			change.Done = "unchanged: it is paused already"
		case paused:
			change.Done, change.Fields = "paused", map[string]any{"paused": true}
		case policy.Spec.Paused:
			change.Done, change.Fields = "resumed", map[string]any{"paused": nil}
		default:
			change.Done = "unchanged: it is not paused"
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
