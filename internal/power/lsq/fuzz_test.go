package lsq_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/joulevirt/joulevirt/internal/power/lsq"
)

// FuzzUpdate feeds any bits as figures: nothing ever gets out that is not
// finite or below its bound, and what follows is still learned from.
func FuzzUpdate(f *testing.F) {
	add := func(values ...float64) {
		var data []byte
		for _, v := range values {
			data = binary.LittleEndian.AppendUint64(data, math.Float64bits(v))
		}
		f.Add(data)
	}
	add(1, 4, 1e4, 2, 60, 1)
	add(1, 4, 1e4, 2, 60, 1, 1, 8, 2e4, 3, 100, 1)
	add(math.NaN(), 4, 1e4, 2, 60, 1, 1, math.Inf(1), 1e4, 2, 60, 1)
	add(1, 1e300, 1e4, 2, 60, 1, 1, 1e150, 0, 0, 1e150, 1, 1, 1e150, 0, 0, 1e150, 1)
	add(0, 0, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1)
	add(math.SmallestNonzeroFloat64, 0, 0, 0, 60, math.SmallestNonzeroFloat64, 1, 0, 0, 0, 1e9, math.MaxFloat64)
	add(1e100, -1e100, 1e100, -1e100, 1, 1e100, -1e100, 1e100, -1e100, 1e100, -1, 1e100)
	const size = 6 * 8
	f.Fuzz(func(t *testing.T, data []byte) {
		e := start(t, node())
		c, x := make([]float64, 4), make([]float64, 4)
		check := func() {
			e.Coefficients(c)
			mean, stdErr := e.Predict(x)
			for _, v := range []float64{c[0], c[1], c[2], c[3], stdErr, e.Residual(), mean - mean} {
				if !(v >= 0) || math.IsInf(v, 0) {
					t.Fatalf("after %v: coefficients %v, prediction %g +- %g, residual %g", x, c, mean, stdErr, e.Residual())
				}
			}
		}
		for ; len(data) >= size; data = data[size:] {
			var o [6]float64
			for i := range o {
				o[i] = math.Float64frombits(binary.LittleEndian.Uint64(data[8*i:]))
			}
			copy(x, o[:4])
			before := coefficients(e, 4)
			outcome := e.Update(x, o[4], o[5])
			check()
			for i := range before {
				if outcome == lsq.Refused && before[i] != c[i] {
					t.Fatalf("refused %v, yet coefficients changed from %v to %v", o, before, c)
				}
			}
		}
		copy(x, []float64{1, 4, 1e4, 2})
		for range 10 {
			e.Update(x, 60, 1)
			check()
		}
	})
}
