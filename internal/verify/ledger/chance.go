package ledger

import (
	"math"

	"github.com/joulevirt/joulevirt/internal/verify"
)

// chance adds up errors of blocks that are independent of each other. How large they are was
// estimated for all of them together: what that estimate errs by they have in common.
type chance struct {
	// variance in joules squared, and unsure, the same, of which each part is over the root
	// of the degrees of freedom that it was estimated with.
	variance, unsure float64
}

// chanceOf one error in joules, 0 for none.
func chanceOf(joules, freedom float64) chance {
	if joules == 0 {
		return chance{}
	}
	return chance{variance: joules * joules, unsure: joules * joules / math.Sqrt(freedom)}
}

func (c *chance) add(o chance) {
	c.variance += o.variance
	c.unsure += o.unsure
}

// errors of them all as one.
func (c chance) errors() verify.ErrorSum {
	return verify.ErrorSum{Variance: c.variance, Fourths: c.unsure * c.unsure}
}
