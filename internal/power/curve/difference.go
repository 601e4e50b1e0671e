package curve

import (
	"fmt"
	"math"
)

// Change is a VM whose traffic changes.
type Change struct {
	Key      Key
	From, To Rate
}

// Difference returns by how much the cost of several VMs changes: positive when
// it grows. An error of a curve's coefficients is in the cost of all that lie on
// it and cancels out, so this is surer than a difference of costs. An error of
// the curve's form is not the same at other rates, and stays.
func (s *Set) Difference(changes []Change) (Cost, error) {
	var order []*difference
	of := map[Key]*difference{}
	for _, change := range changes {
		if !change.From.valid() || !change.To.valid() {
			return Cost{}, fmt.Errorf("curve of %s: a rate that is not finite or negative", change.Key.Class)
		}
		sum := of[change.Key]
		if sum == nil {
			c, err := s.find(change.Key)
			if err != nil {
				return Cost{}, err
			}
			sum = &difference{curve: c}
			of[change.Key] = sum
			order = append(order, sum)
		}
		sum.add(change)
	}
	var total Cost
	for _, sum := range order {
		total = total.plus(sum.cost())
	}
	return total, nil
}

// difference is the changes of all VMs on one curve.
type difference struct {
	curve *learned
	// change is the sum of positions after less those before.
	change position
	// before and after are the sums of the positions of VMs that move away from
	// where they were.
	before, after position
}

// anotherPlace is the relative change of packets from which on the form's error
// is another one.
const anotherPlace = 0.1

func (d *difference) add(change Change) {
	from, to := d.curve.locate(change.From), d.curve.locate(change.To)
	d.change.add(&to, 1)
	d.change.add(&from, -1)
	moved := 0.0
	if most := max(change.From.Packets, change.To.Packets); most > 0 {
		moved = min(1, math.Abs(float64(change.To.Packets-change.From.Packets))/float64(most)/anotherPlace)
	}
	d.before.add(&from, moved)
	d.after.add(&to, moved)
}

func (d *difference) cost() Cost {
	return d.curve.predict(&d.change).plus(d.curve.formError(&d.before)).plus(d.curve.formError(&d.after))
}
