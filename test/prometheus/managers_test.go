package prometheus_test

import (
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/joulevirt/joulevirt/internal/metrics"
	"github.com/joulevirt/joulevirt/internal/metricstest"
)

// toolCases is a file of cases as promtool reads it, as far as they are used here.
type toolCases struct {
	RuleFiles          []string   `json:"rule_files"`
	EvaluationInterval string     `json:"evaluation_interval"`
	Tests              []toolCase `json:"tests"`
}

type toolCase struct {
	Interval  string         `json:"interval"`
	Series    []toolSeries   `json:"input_series"`
	Questions []toolQuestion `json:"promql_expr_test"`
}

type toolSeries struct {
	Series string `json:"series"`
	Values string `json:"values"`
}

type toolQuestion struct {
	Expr     string       `json:"expr"`
	EvalTime string       `json:"eval_time"`
	Samples  []toolSample `json:"exp_samples,omitempty"`
}

type toolSample struct {
	Labels string  `json:"labels"`
	Value  float64 `json:"value"`
}

// ofTwoManagers are cases while a second manager says all that the first says, as when the
// leader changes: recorded sums are what they were, and alerts hold, but for the label
// instance, of what they held of.
func ofTwoManagers(t *testing.T, cases []byte) []byte {
	t.Helper()
	var file toolCases
	if err := yaml.UnmarshalStrict(cases, &file); err != nil {
		t.Fatal(err)
	}
	shown := metricstest.Described(metrics.Manager())
	instance := regexp.MustCompile(`,? *instance="(\w+)"`)
	for i := range file.Tests {
		test := &file.Tests[i]
		for _, s := range test.Series {
			name, labels, _ := strings.Cut(s.Series, "{")
			if _, is := shown[name]; !is {
				continue
			}
			beside := "second"
			if first := instance.FindStringSubmatch(s.Series); first != nil {
				beside += "-to-" + first[1]
			}
			labels = strings.TrimLeft(instance.ReplaceAllString(labels, ""), " ,")
			test.Series = append(test.Series, toolSeries{name + `{instance="` + beside + `", ` + labels, s.Values})
		}
		for j := range test.Questions {
			q := &test.Questions[j]
			if !strings.HasPrefix(q.Expr, "ALERTS") {
				continue
			}
			q.Expr = "max without (instance) (" + q.Expr + ")"
			for k := range q.Samples {
				q.Samples[k].Labels = instance.ReplaceAllString(strings.TrimPrefix(q.Samples[k].Labels, "ALERTS"), "")
			}
		}
	}
	out, err := yaml.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
