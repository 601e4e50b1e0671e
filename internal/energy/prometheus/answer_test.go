package prometheus

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/common/model"
)

func matrixAnswer(result string) string {
	return `{"status":"success","data":{"resultType":"matrix","result":[` + result + `]}}`
}

// TestDecodeAnswer: what is read is what the API's own types read.
func TestDecodeAnswer(t *testing.T) {
	matrix := model.Matrix{zone(80, "package", "0"), zone(math.Pi, "psys", `a"\b`), {Metric: model.Metric{}, Values: samples(at{1, math.Inf(1)}, at{2, -1e-300})}}
	text, err := json.Marshal(matrix)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeAnswer(strings.NewReader(`{"warnings":["a","b"],"infos":[{}],"data":{"result":` + string(text) + `,"resultType":"matrix","stats":{"a":[1]}},"status":"success"}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(model.Value(matrix), got.value(), cmpopts.EquateEmpty()); diff != "" || got.warning != "a" || got.status != "success" {
		t.Errorf("%+v (-want +got):\n%s", got, diff)
	}
	vector := model.Vector{{Metric: matrix[0].Metric, Value: 7.5, Timestamp: 1500}, {Metric: matrix[1].Metric, Histogram: &model.SampleHistogram{}}}
	text, err = json.Marshal(vector)
	if err != nil {
		t.Fatal(err)
	}
	got, err = decodeAnswer(strings.NewReader(`{"status":"success","data":{"resultType":"vector","result":` + string(text) + `}}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(model.Value(vector), got.value(), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(model.Sample{}, "Timestamp")); diff != "" {
		t.Errorf("vector (-want +got):\n%s", diff)
	}
	if at := got.vector[0].Timestamp; at != 1500 {
		t.Errorf("the sample is of %v", at)
	}
}

// endless repeats a text until the most bytes of an answer.
func endless(before, element string) io.Reader {
	return io.MultiReader(strings.NewReader(before+element), &repeated{text: "," + element, left: mostBytes - len(before)})
}

type repeated struct {
	text     string
	at, left int
}

func (r *repeated) Read(into []byte) (int, error) {
	if r.left <= 0 {
		return 0, io.EOF
	}
	n := 0
	for n < len(into) {
		copied := copy(into[n:], r.text[r.at:])
		r.at, n = (r.at+copied)%len(r.text), n+copied
	}
	r.left -= n
	return n, nil
}

// TestMemoryOfAnswers: whatever a server says, the heap grows by less than 64 MiB.
func TestMemoryOfAnswers(t *testing.T) {
	const most = 64 << 20
	begin := strings.TrimSuffix(matrixAnswer(""), "]}}")
	labels := func(n, long int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`"label%d":"%s"`, i, strings.Repeat("x", long)))
		}
		return `{"metric":{` + strings.Join(all, ",") + `},"values":[[1,"1"]]}`
	}
	for name, body := range map[string]io.Reader{
		"2 M tiny series":   endless(begin, `{"metric":{},"values":[]}`),
		"series of nothing": endless(begin, `{}`),
		"holes":             endless(begin, `null`),
		"lists":             endless(begin, `[]`),
		"samples":           endless(begin+`{"metric":{},"values":[`, `[1,"1"]`),
		"labels":            endless(begin+`{"metric":{`, `"a":"b"`),
		"other labels":      endless(begin, labels(5000, 0)),
		"large series":      endless(begin, labels(20, 100)),
		"long labels":       endless(begin, labels(2, 1<<19)),
		"a text":            endless(`{"status":"`, strings.Repeat("x", 1<<16)),
		"members":           endless(`{`, `"a":0`),
		"warnings":          endless(`{"warnings":[`, `"a warning"`),
	} {
		t.Run(name, func(t *testing.T) {
			runtime.GC()
			var before, now runtime.MemStats
			runtime.ReadMemStats(&before)
			peak := uint64(0)
			_, err := decodeAnswer(readerFunc(func(into []byte) (int, error) {
				runtime.ReadMemStats(&now)
				peak = max(peak, now.HeapAlloc)
				return body.Read(into)
			}))
			runtime.ReadMemStats(&now)
			peak = max(peak, now.HeapAlloc)
			t.Logf("%d MiB: %v", (peak-before.HeapAlloc)>>20, err)
			if err == nil || peak > before.HeapAlloc+most {
				t.Errorf("error %v, and the heap grew by %d MiB", err, (peak-before.HeapAlloc)>>20)
			}
		})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(into []byte) (int, error) { return f(into) }

// BenchmarkDecodeAnswer decodes the counters of 1,000 nodes with psys and two sockets, scraped
// each 15 s.
func BenchmarkDecodeAnswer(b *testing.B) {
	var all []string
	for node := range 1000 {
		for i, path := range []string{"intel-rapl:0", "intel-rapl:1", "intel-rapl:2"} {
			metric := fmt.Sprintf(`{"__name__":"kepler_node_cpu_joules_total","container":"kepler","endpoint":"http","instance":"10.1.2.3:28282","job":"kepler","namespace":"kepler","node_name":"node-%d","path":"/sys/class/powercap/intel-rapl/%s","pod":"kepler-%d","service":"kepler","zone":"%s"}`,
				node, path, node, map[bool]string{true: "psys", false: "package"}[i == 2])
			var values []string
			for k := range 16 {
				values = append(values, fmt.Sprintf(`[%d.123,"%.6f"]`, 1_700_000_000+15*k, 1e6+1500.123*float64(k)))
			}
			all = append(all, `{"metric":`+metric+`,"values":[`+strings.Join(values, ",")+`]}`)
		}
	}
	text := matrixAnswer(strings.Join(all, ","))
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decodeAnswer(strings.NewReader(text)); err != nil {
			b.Fatal(err)
		}
	}
}
