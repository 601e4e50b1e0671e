package prometheus

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/joulevirt/joulevirt/internal/energy"
)

// FuzzDecode lets servers say anything: a node is read, refused, or neither, and
// what is read is finite and of a time.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`[]`,
		`[{"metric":{"node_name":"node-a","zone":"package","path":"0"},"values":[[1,"10"],[6,"70"],[11,"130"]]}]`,
		`[{"metric":{"node_name":"node-a","zone":"package","path":"0","job":"a"},"values":[[1,"10"]]},
		  {"metric":{"node_name":"node-a","zone":"package","path":"0","job":"b"},"values":[[1,"10"]]}]`,
		`[{"metric":{"node_name":"node-a","zone":"psys"},"values":[[1,"10"],[6,"NaN"],[11,"+Inf"]]}]`,
		`[{"metric":{"__name__":"kepler_node_package_joules_total","instance":"10.0.0.9:1","package":"0","mode":"idle"},"values":[[1,"1e300"],[2,"-5"]]}]`,
		`[{"metric":{"node":"node-a","node_name":"node-b","source_type":"PowerSupply"},"values":[[2,"5"],[1,"5"]]}]`,
		`[{"metric":{"node":"node-a"},"values":[]}]`,
		`[{"metric":{"node":"node-a"},"histograms":[[1,{"count":"1","sum":"1","buckets":[]}]]}]`,
		`[null]`,
	} {
		f.Add([]byte(seed))
	}
	nodes := newIndex(cluster())
	f.Fuzz(func(t *testing.T, text []byte) {
		said, err := decodeAnswer(strings.NewReader(`{"status":"success","data":{"resultType":"matrix","result":` + string(text) + `}}`))
		if err != nil {
			return
		}
		matrix, _ := said.value().(model.Matrix)
		answer := func(value model.Value) asker {
			return func(context.Context, string, time.Time) (model.Value, error) { return value, nil }
		}
		got, err := counters{window: time.Minute}.read(t.Context(), answer(matrix), nodes)
		checkFound(t, "kepler", got, err, len(matrix))
		got, err = ownQuery{}.read(t.Context(), answer(vectorOf(matrix)), nodes)
		checkFound(t, "own", got, err, len(matrix))
	})
}

func checkFound(t *testing.T, family string, got found, err error, series int) {
	t.Helper()
	if err != nil && reasonOf(err) != energy.ReasonWrongType {
		t.Errorf("%s: %v", family, err)
	}
	if got.unmatched > series {
		t.Errorf("%s: %d unmatched of %d series", family, got.unmatched, series)
	}
	for node, reading := range got.Readings {
		watts := float64(reading.Watts)
		switch _, refused := got.Refused[node]; {
		case refused:
			t.Errorf("%s: %s is read and refused", family, node)
		case math.IsNaN(watts) || math.IsInf(watts, 0) || watts < 0:
			t.Errorf("%s: %s draws %v W", family, node, watts)
		case reading.IntervalSeconds < 0 || reading.Time.IsZero() || reading.Scope == "" || !reading.Source.Measures():
			t.Errorf("%s: %s is read as %+v", family, node, reading)
		}
	}
	for node, refusal := range got.Refused {
		if refusal == nil || refusal.Reason == "" || refusal.Message == "" || len(refusal.Message) > 2000 {
			t.Errorf("%s: %s is refused for %v", family, node, refusal)
		}
	}
}

// vectorOf takes the newest sample of each series.
func vectorOf(matrix model.Matrix) model.Vector {
	var vector model.Vector
	for _, s := range matrix {
		if len(s.Values) == 0 {
			continue
		}
		last := s.Values[len(s.Values)-1]
		vector = append(vector, &model.Sample{Metric: s.Metric, Value: last.Value, Timestamp: last.Timestamp})
	}
	return vector
}
