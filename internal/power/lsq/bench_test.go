package lsq

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func BenchmarkUpdate(b *testing.B) {
	for _, terms := range []int{1, 4, 6, MaxTerms} {
		b.Run(fmt.Sprintf("terms=%d", terms), func(b *testing.B) {
			prior := make([]float64, terms)
			sd := make([]float64, terms)
			for i := range terms {
				prior[i], sd[i] = 1, 1
			}
			e, err := New(Options{Prior: prior, PriorStdDev: sd, Memory: 240, Noise: 0.1})
			if err != nil {
				b.Fatal(err)
			}
			random := rand.New(rand.NewPCG(1, 1))
			const rounds = 256
			x := make([][]float64, rounds)
			y := make([]float64, rounds)
			for k := range rounds {
				x[k] = make([]float64, terms)
				for i := range terms {
					x[k][i] = random.Float64()
					y[k] += x[k][i] * float64(i%3)
				}
				y[k] += 0.1 * random.NormFloat64()
			}
			b.ReportAllocs()
			k := 0
			for b.Loop() {
				e.Update(x[k%rounds], y[k%rounds], 1)
				k++
			}
		})
	}
}
