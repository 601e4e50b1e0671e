package lsq

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// unbounded are the bounds of a programme without any.
func unbounded() *vector {
	var bound vector
	for i := range bound {
		bound[i] = math.Inf(-1)
	}
	return &bound
}

// draw makes a random observation of n terms.
func draw(random *rand.Rand, n int) *observation {
	o := &observation{offset: 3 * random.NormFloat64()}
	for i := range n {
		o.z[i] = random.NormFloat64()
	}
	return o
}

// TestAgreesWithBatch compares with the normal equations of all observations at
// once, faded and with the prior, solved by another library.
func TestAgreesWithBatch(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	for n := 1; n <= MaxTerms; n++ {
		var s estimate
		const observations = 300
		faded := 1.0
		design, right := mat.NewDense(observations+n, n, nil), mat.NewVecDense(observations+n, nil)
		for k := range observations {
			o, information, keep := draw(random, n), 10*random.Float64(), 0.98+0.02*random.Float64()
			if !s.learn(o, information, forgetting{everywhere: keep, along: 1}, unbounded(), n) {
				t.Fatalf("%d terms, observation %d: not solved", n, k)
			}
			// Rows before this one fade: they are divided by what fades all later.
			faded *= keep
			root := math.Sqrt(information / faded)
			for i := range n {
				design.Set(k, i, root*o.z[i])
			}
			right.SetVec(k, root*o.offset)
		}
		design.Scale(math.Sqrt(faded), design)
		right.ScaleVec(math.Sqrt(faded), right)
		for i := range n {
			design.Set(observations+i, i, 1)
		}
		var qr mat.QR
		qr.Factorize(design)
		var want mat.VecDense
		if err := qr.SolveVecTo(&want, false, right); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if math.Abs(s.gamma[i]-want.AtVec(i)) > 1e-9 {
				t.Errorf("%d terms: coefficient %d is %g, the batch's %g", n, i, s.gamma[i], want.AtVec(i))
			}
		}

		// The variance of a prediction at z, by the inverse.
		z := draw(random, n).z
		var normal mat.SymDense
		normal.SymOuterK(1, design.T())
		var factor mat.Cholesky
		if !factor.Factorize(&normal) {
			t.Fatal("the batch's matrix is not positive definite")
		}
		at := mat.NewVecDense(n, z[:n])
		var solved mat.VecDense
		if err := factor.SolveVecTo(&solved, at); err != nil {
			t.Fatal(err)
		}
		if got, want := s.factor.inverseForm(&z, n), mat.Dot(at, &solved); math.Abs(got-want) > 1e-9*want {
			t.Errorf("%d terms: variance of a prediction %g, the batch's %g", n, got, want)
		}
	}
}

func dot(a, b *vector, n int) float64 {
	sum := 0.0
	for i := range n {
		sum += a[i] * b[i]
	}
	return sum
}

// form returns v'Av.
func form(a *matrix, v *vector, n int) float64 {
	sum := 0.0
	for i := range n {
		for j := range n {
			sum += v[i] * a.at(i, j) * v[j]
		}
	}
	return sum
}

// TestForgetsAlongTheObservation checks what forget promises on random
// information, also on such as knows nothing of some directions.
func TestForgetsAlongTheObservation(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 0))
	for range 2000 {
		n := 1 + random.IntN(MaxTerms)
		var s estimate
		solution := draw(random, n).z
		for range 1 + random.IntN(2*n) {
			// Observations that agree: A solution = b.
			o := draw(random, n)
			for i := range n {
				for j := range i + 1 {
					s.info[i][j] += o.z[i] * o.z[j]
				}
				s.sum[i] += o.z[i] * dot(&o.z, &solution, n)
			}
		}
		before := s
		z, other, keep := draw(random, n).z, draw(random, n).z, random.Float64()
		s.forget(&z, forgetting{everywhere: 1, along: keep}, n)

		if got, want := form(&s.info, &z, n), keep*form(&before.info, &z, n); math.Abs(got-want) > 1e-9*(1+want) {
			t.Fatalf("along z %g is known, want %g", got, want)
		}
		// Make other conjugate to z: other'Az = 0.
		var known vector
		for i := range n {
			for j := range n {
				known[i] += before.info.at(i, j) * z[j]
			}
		}
		if along := form(&before.info, &z, n); along > 1e-6 {
			share := dot(&known, &other, n) / along
			for i := range n {
				other[i] -= share * z[i]
			}
			if got, want := form(&s.info, &other, n), form(&before.info, &other, n); math.Abs(got-want) > 1e-6*(1+want) {
				t.Fatalf("of a direction that z says nothing about %g is known, %g before", got, want)
			}
		}
		for i := range n {
			said := 0.0
			for j := range n {
				said += s.info.at(i, j) * solution[j]
			}
			if math.Abs(said-s.sum[i]) > 1e-8*(1+math.Abs(said)) {
				t.Fatalf("what the information agrees on changed: %g and %g", said, s.sum[i])
			}
		}
		if v := draw(random, n).z; form(&s.info, &v, n) < -1e-9 {
			t.Fatal("information became negative")
		}
	}
}

// TestOneDirectionForgetsExponentially: of one direction as much is known in the
// end as a memory holds, whatever is forgotten along it.
func TestOneDirectionForgetsExponentially(t *testing.T) {
	var s estimate
	o := &observation{z: vector{1, 2}, offset: 1}
	for range 2000 {
		if !s.learn(o, 3, forgetting{everywhere: 1, along: 0.99}, unbounded(), 2) {
			t.Fatal("not solved")
		}
	}
	// z'Az = memory * information * (z'z)^2.
	if got, want := form(&s.info, &o.z, 2), 100*3*25.0; math.Abs(got-want) > 1e-6*want {
		t.Errorf("information %g, want that of a memory of 100: %g", got, want)
	}
}
