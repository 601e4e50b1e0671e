package prometheus

import (
	"cmp"
	"fmt"
	"iter"
	"os"

	"sigs.k8s.io/yaml"
)

// Rules are those of a PrometheusRule.
type Rules struct {
	Groups []RuleGroup `json:"groups"`
}

// RuleGroup is rules that are evaluated one after the other.
type RuleGroup struct {
	Name  string `json:"name"`
	Rules []Rule `json:"rules"`
}

// Rule records a series, or alerts.
type Rule struct {
	Record      string            `json:"record,omitempty"`
	Alert       string            `json:"alert,omitempty"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Name of the recorded series, or of the alert.
func (r Rule) Name() string { return cmp.Or(r.Record, r.Alert) }

// ReadRules reads a PrometheusRule of the Prometheus Operator from a file.
func ReadRules(path string) (*Rules, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var object struct {
		Kind string `json:"kind"`
		Spec Rules  `json:"spec"`
	}
	if err := yaml.Unmarshal(text, &object); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if object.Kind != "PrometheusRule" || len(object.Spec.Groups) == 0 {
		return nil, fmt.Errorf("%s has no PrometheusRule with groups", path)
	}
	return &object.Spec, nil
}

// All rules, in order.
func (r *Rules) All() iter.Seq[Rule] {
	return func(yield func(Rule) bool) {
		for _, group := range r.Groups {
			for _, rule := range group.Rules {
				if !yield(rule) {
					return
				}
			}
		}
	}
}

// Native is the file of rules for servers and promtool.
func (r *Rules) Native() ([]byte, error) { return yaml.Marshal(r) }
