package lsq

import "math"

type (
	vector [MaxTerms]float64
	// matrix is symmetric or lower triangular: only what is on and below the
	// diagonal is used.
	matrix [MaxTerms]vector
	// subset of the coefficients.
	subset [MaxTerms]bool
)

func identity() matrix {
	var m matrix
	for i := range m {
		m[i][i] = 1
	}
	return m
}

// estimate is the information that observations left, and the coefficients
// that follow from it, all in the prior's units.
type estimate struct {
	// info and sum are A and b of the package's comment.
	info matrix
	sum  vector
	// gamma solves the programme, factor is the Cholesky factor of I + info.
	gamma  vector
	factor matrix
}

// forgetting is what is left of earlier information: everywhere, and in addition
// along the new observation.
type forgetting struct{ everywhere, along float64 }

// learn adds an observation. The estimate is unchanged when it returns false:
// the sum is not finite, or the programme was not solved.
func (s *estimate) learn(o *observation, information float64, keep forgetting, bound *vector, n int) bool {
	next := *s
	next.forget(&o.z, keep, n)
	for i := range n {
		for j := range i + 1 {
			next.info[i][j] += information * o.z[i] * o.z[j]
		}
		next.sum[i] += information * o.z[i] * o.offset
		if !finite(next.sum[i]) || !finite(next.info[i][i]) {
			return false
		}
	}
	if !next.solve(bound, n) {
		return false
	}
	*s = next
	return true
}

// forget fades earlier information. Along z it is replaced by what the new
// observation says of the same (Cao and Schwartz, A directional forgetting
// algorithm based on the decomposition of the information matrix, 2000):
//
//	A <- A - (1-f) Azz'A / z'Az,  b <- b - (1-f) Az z'b / z'Az
//
// after which z'Az is f times what it was, directions v with v'Az = 0 keep what
// is known of them, and the coefficients that solve A gamma = b still do.
func (s *estimate) forget(z *vector, keep forgetting, n int) {
	var known vector
	along, said := 0.0, 0.0
	for i := range n {
		for j := range n {
			known[i] += s.info.at(i, j) * z[j]
		}
		along += z[i] * known[i]
		said += z[i] * s.sum[i]
	}
	rate := 0.0
	if along > 0 {
		rate = (1 - keep.along) / along
	}
	for i := range n {
		for j := range i + 1 {
			s.info[i][j] = keep.everywhere * (s.info[i][j] - rate*known[i]*known[j])
		}
		s.sum[i] = keep.everywhere * (s.sum[i] - rate*known[i]*said)
	}
}

// maxPivots is far beyond what any programme of MaxTerms was seen to take.
const maxPivots = 8 * MaxTerms

// solve finds gamma >= bound that minimises gamma'H gamma - 2 sum'gamma with H =
// I + info, by an active-set method that starts from the gamma there is, which
// is feasible (Lawson and Hanson, Solving Least Squares Problems, 1974, ch. 23,
// with any lower bounds instead of 0). H is positive definite, so that the
// solution is unique. It returns false when rounding kept it from ending.
func (s *estimate) solve(bound *vector, n int) bool {
	h := s.info
	var all, free subset
	for i := range n {
		h[i][i]++
		all[i], free[i] = true, s.gamma[i] > bound[i]
	}
	if !s.factor.cholesky(&h, &all, n) {
		return false
	}
	for range maxPivots {
		factor := s.factor
		if free != all && !factor.cholesky(&h, &free, n) {
			return false
		}
		target := s.gamma
		if !minimise(&h, &factor, &s.sum, &target, &free, n) {
			return false
		}
		if blocking, blocked := s.approach(&target, bound, &free, n); blocked {
			free[blocking] = false
			continue
		}
		released := s.release(&h, &free, n)
		if released < 0 {
			return true
		}
		free[released] = true
	}
	return false
}

// approach moves the free coefficients towards a target, up to the first bound
// in the way: it returns the coefficient that is there now.
func (s *estimate) approach(target, bound *vector, free *subset, n int) (int, bool) {
	step, blocking := 1.0, -1
	for i := range n {
		if free[i] && target[i] < bound[i] {
			if reach := (bound[i] - s.gamma[i]) / (target[i] - s.gamma[i]); blocking < 0 || reach < step {
				step, blocking = reach, i
			}
		}
	}
	for i := range n {
		if free[i] {
			s.gamma[i] = max(bound[i], s.gamma[i]+step*(target[i]-s.gamma[i]))
		}
	}
	if blocking < 0 {
		// Not a sum, which rounds.
		for i := range n {
			if free[i] {
				s.gamma[i] = target[i]
			}
		}
		return 0, false
	}
	s.gamma[blocking] = bound[blocking]
	return blocking, true
}

// release returns the coefficient at its bound that would lower the objective
// most if it left, or -1: then gamma fulfils the conditions of Karush, Kuhn and
// Tucker.
func (s *estimate) release(h *matrix, free *subset, n int) int {
	at, steepest := -1, 0.0
	for i := range n {
		if free[i] {
			continue
		}
		gradient, size := -s.sum[i], math.Abs(s.sum[i])
		for j := range n {
			term := h.at(i, j) * s.gamma[j]
			gradient += term
			size += math.Abs(term)
		}
		// What rounding makes is no descent.
		if gradient < -1e-12*size && gradient < steepest {
			at, steepest = i, gradient
		}
	}
	return at
}

// minimise sets the free coefficients to the minimum for the others as they
// are, by the factor of the free ones. It returns false when that is not finite.
func minimise(h, factor *matrix, sum, gamma *vector, free *subset, n int) bool {
	var right vector
	for i := range n {
		if !free[i] {
			right[i] = gamma[i]
			continue
		}
		right[i] = sum[i]
		for j := range n {
			if !free[j] {
				right[i] -= h.at(i, j) * gamma[j]
			}
		}
	}
	factor.forward(&right, n)
	factor.backward(&right, n)
	for i := range n {
		if !finite(right[i]) {
			return false
		}
		if free[i] {
			gamma[i] = right[i]
		}
	}
	return true
}

// cholesky makes the receiver the lower triangular factor of h, in which
// coefficients that are not free have a row and a column of the identity. It
// returns false when h is not positive definite.
func (l *matrix) cholesky(h *matrix, free *subset, n int) bool {
	for i := range n {
		for j := range i + 1 {
			v := 0.0
			switch {
			case free[i] && free[j]:
				v = h[i][j]
			case i == j:
				v = 1
			}
			for k := range j {
				v -= l[i][k] * l[j][k]
			}
			if i != j {
				l[i][j] = v / l[j][j]
				continue
			}
			if !(v > 0) || !finite(v) {
				return false
			}
			l[i][i] = math.Sqrt(v)
		}
	}
	return true
}

// forward solves L v = v in place.
func (l *matrix) forward(v *vector, n int) {
	for i := range n {
		for k := range i {
			v[i] -= l[i][k] * v[k]
		}
		v[i] /= l[i][i]
	}
}

// backward solves L'v = v in place.
func (l *matrix) backward(v *vector, n int) {
	for i := n - 1; i >= 0; i-- {
		for k := i + 1; k < n; k++ {
			v[i] -= l[k][i] * v[k]
		}
		v[i] /= l[i][i]
	}
}

// inverseForm returns v'(LL')^-1 v.
func (l *matrix) inverseForm(v *vector, n int) float64 {
	w := *v
	l.forward(&w, n)
	sum := 0.0
	for i := range n {
		sum += w[i] * w[i]
	}
	return sum
}

// at returns an element of a symmetric matrix.
func (l *matrix) at(i, j int) float64 {
	if i < j {
		i, j = j, i
	}
	return l[i][j]
}
