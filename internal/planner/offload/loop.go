package offload

import "math"

const (
	// forgetting of recursive least squares: a step counts half after 14 steps.
	forgetting = 0.95
	// uncertain is the first variance of the two parameters, and the largest.
	uncertain = 10
	// leastEffect of memory that is believed: an e-fold store shortens the response time by
	// this share of the target.
	leastEffect = 0.3
	// largestChange at once, as logarithm: a factor of 1.65.
	largestChange = 0.5
)

// loop removes the error that the queue's model leaves, by a first-order ARX
// model with a delay of one interval,
//
//	e(k+1) = a e(k) + b u(k)
//
// of the relative error e of the response time and the change u of the store, as
// logarithm of its ratio: the hit ratio is nearly a straight line of the logarithm
// of the size, so that b is about the same for small and large stores. Recursive
// least squares with forgetting learns a and b (Astrom and Wittenmark, Adaptive
// Control, 1995, 2.2).
type loop struct {
	a, b float64
	// aa, ab and bb are the covariance of a and b.
	aa, ab, bb float64
	// e and u are e(k) and u(k), when acting is set.
	e, u   float64
	acting bool
}

// newLoop starts with an error that stays, and an e-fold store that removes the target.
func newLoop() loop { return loop{a: 1, b: -1, aa: uncertain, bb: uncertain} }

// acted records a change, whose effect the next error shows.
func (l *loop) acted(e, u float64) { l.e, l.u, l.acting = e, u, true }

// forgetChange makes the next error teach nothing: it is not the loop's change alone that made it.
func (l *loop) forgetChange() { l.acting = false }

// learn updates a and b by what the last change did.
func (l *loop) learn(next float64) {
	if !l.acting {
		return
	}
	l.acting = false
	pe, pu := l.aa*l.e+l.ab*l.u, l.ab*l.e+l.bb*l.u
	scale := forgetting + l.e*pe + l.u*pu
	surprise := next - l.a*l.e - l.b*l.u
	l.a = clamp(l.a+pe/scale*surprise, 0, 1.5)
	l.b = math.Min(l.b+pu/scale*surprise, -leastEffect)
	l.aa = math.Min((l.aa-pe*pe/scale)/forgetting, uncertain)
	l.bb = math.Min((l.bb-pu*pu/scale)/forgetting, uncertain)
	l.ab = clamp((l.ab-pe*pu/scale)/forgetting, -uncertain, uncertain)
}

// change is the control law: the change that makes the predicted next error zero (deadbeat).
func (l *loop) change(e float64) float64 {
	return clamp(-l.a*e/l.b, -largestChange, largestChange)
}

func clamp(value, low, high float64) float64 { return math.Max(low, math.Min(value, high)) }
