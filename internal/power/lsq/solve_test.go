package lsq

import (
	"math"
	"math/rand/v2"
	"testing"
)

// programme is a random one: terms that are alike, so that bounds are often in
// the way, and bounds of all kinds.
func programme(random *rand.Rand, n int) (s estimate, bound vector) {
	for range n + random.IntN(20) {
		var z vector
		common := random.NormFloat64()
		for i := range n {
			z[i] = common + 0.1*random.NormFloat64()
		}
		information := math.Pow(10, 8*random.Float64()-3)
		offset := 3 * random.NormFloat64()
		for i := range n {
			for j := range i + 1 {
				s.info[i][j] += information * z[i] * z[j]
			}
			s.sum[i] += information * z[i] * offset
		}
	}
	for i := range n {
		switch random.IntN(4) {
		case 0:
			bound[i] = math.Inf(-1)
		case 1:
			bound[i] = 0
		default:
			bound[i] = -3 * random.Float64()
		}
	}
	return s, bound
}

// violation returns by how much an estimate misses the conditions of Karush,
// Kuhn and Tucker, relative to what its gradient is made of: feasible; no slope
// along a coefficient that is free; none downwards into the feasible side of one
// at its bound. The programme is convex, so that they make it the solution.
func violation(s *estimate, bound *vector, n int) float64 {
	worst := 0.0
	for i := range n {
		if s.gamma[i] < bound[i] {
			return math.Inf(1)
		}
		gradient, size := s.gamma[i]-s.sum[i], math.Abs(s.gamma[i])+math.Abs(s.sum[i])
		for j := range n {
			gradient += s.info.at(i, j) * s.gamma[j]
			size += math.Abs(s.info.at(i, j) * s.gamma[j])
		}
		if s.gamma[i] == bound[i] {
			gradient = min(0, gradient)
		}
		if size > 0 {
			worst = max(worst, math.Abs(gradient)/size)
		}
	}
	return worst
}

func TestSolutionIsOptimal(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	atBound, total := 0, 0
	for range 20000 {
		n := 1 + random.IntN(MaxTerms)
		s, bound := programme(random, n)
		if !s.solve(&bound, n) {
			t.Fatalf("not solved: %+v, bounds %v", s, bound)
		}
		if v := violation(&s, &bound, n); v > 1e-9 {
			t.Fatalf("the conditions are missed by %g: %+v, bounds %v", v, s, bound)
		}
		for i := range n {
			total++
			if s.gamma[i] == bound[i] {
				atBound++
			}
		}
	}
	if share := float64(atBound) / float64(total); share < 0.1 || share > 0.9 {
		t.Errorf("%.0f %% of the coefficients are at their bound: the programmes test little", 100*share)
	}
}

// TestSolutionDoesNotDependOnStart: the solution is unique.
func TestSolutionDoesNotDependOnStart(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 0))
	for range 2000 {
		cold, bound := programme(random, 4)
		warm := cold
		for i := range 4 {
			warm.gamma[i] = max(bound[i], 5*random.NormFloat64())
		}
		if !cold.solve(&bound, 4) || !warm.solve(&bound, 4) {
			t.Fatal("not solved")
		}
		for i := range 4 {
			if math.Abs(cold.gamma[i]-warm.gamma[i]) > 1e-6*(1+math.Abs(cold.gamma[i])) {
				t.Fatalf("from 0: %v, from elsewhere: %v", cold.gamma, warm.gamma)
			}
		}
	}
}

// TestHistoriesStayOptimal follows estimators through random histories: after
// each update both estimates solve their programmes, and no coefficient is
// below its bound.
func TestHistoriesStayOptimal(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 0))
	for range 200 {
		n := 1 + random.IntN(MaxTerms)
		options := Options{Memory: 2 + 300*random.Float64(), Noise: math.Pow(10, 4*random.Float64()-3)}
		for range n {
			options.Prior = append(options.Prior, random.Float64())
			options.PriorStdDev = append(options.PriorStdDev, math.Pow(10, 8*random.Float64()-6))
			options.Lower = append(options.Lower, -float64(random.IntN(2)))
		}
		e, err := New(options)
		if err != nil {
			t.Fatal(err)
		}
		x, c := make([]float64, n), make([]float64, n)
		for k := range 200 {
			for i := range x {
				x[i] = math.Pow(10, float64(i%6)) * random.Float64()
			}
			e.Update(x, 100*random.NormFloat64(), 2*random.Float64())
			for name, s := range map[string]*estimate{"main": &e.main, "rival": &e.rival} {
				if v := violation(s, &e.bound, n); v > 1e-6 {
					t.Fatalf("update %d: the conditions of %s are missed by %g", k, name, v)
				}
			}
			e.Coefficients(c)
			for i := range c {
				if c[i] < options.Lower[i] {
					t.Fatalf("update %d: coefficient %d is %g, below its bound %g", k, i, c[i], options.Lower[i])
				}
			}
		}
	}
}

// TestAnyScale: priors from nearly certain to nearly none, noise from far below
// to far above what is observed, memories of all lengths and terms that go
// together to nine digits: each observation can be learned from.
func TestAnyScale(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 0))
	between := func(low, high float64) float64 { return math.Pow(10, low+(high-low)*random.Float64()) }
	for range 300 {
		n := 1 + random.IntN(MaxTerms)
		options := Options{Memory: between(0.5, 6), Noise: between(-10, 2)}
		for range n {
			options.Prior = append(options.Prior, random.Float64())
			options.PriorStdDev = append(options.PriorStdDev, between(-6, 6))
		}
		e, err := New(options)
		if err != nil {
			t.Fatal(err)
		}
		together := random.IntN(2) == 0
		x := make([]float64, n)
		for k := range 300 {
			common := random.Float64()
			for i := range x {
				scale := math.Pow(10, float64(i%6))
				if x[i] = scale * random.Float64(); together {
					x[i] = scale * common * (1 + 1e-9*random.Float64())
				}
			}
			y := 100 * random.NormFloat64()
			o, usable := e.observe(x, y, 1)
			if !usable {
				t.Fatalf("observation %d is not usable: %v", k, x)
			}
			if main := e.main; !main.learn(&o, o.information, fading(e.memory, 1), &e.bound, n) {
				t.Fatalf("observation %d cannot be learned from: %+v", k, e.main)
			}
			e.Update(x, y, 1)
		}
	}
}
