package curve

// What a curve is after is how a VM's cost changes with its traffic. Guests also
// compute, each as much as it does: between VMs that is a large difference which
// has nothing to do with their traffic, and which more readings of the same VMs
// never average out. So a curve learns from how far each VM is from its own mean,
// in traffic and in cost (the within estimator of panel data: Wooldridge,
// Econometric Analysis of Cross Section and Panel Data, 10.5). A curve is linear
// in its coefficients, so that deviations lie on it as observations do.

const (
	// habitSeconds is how long a VM's mean looks back. A guest's own work that
	// stays for longer does no harm; traffic that changes slower is not learned
	// from.
	habitSeconds = 900
	// maxHabits is how many VMs a curve keeps the means of: more than a node has.
	maxHabits = 1024
	// maxAway is how many rounds a VM may be missed.
	maxAway = 10
)

// habit is what a VM did on average.
type habit struct {
	seconds float64
	usual   reading
	// signs are the usual ones, and block their newest deviations.
	signs signs
	block block
	// seen is the round of the newest observation.
	seen uint64
}

// reading is an observation on a curve, or a sum or difference of such.
type reading struct {
	where          position
	cores, wakeUps float64
}

// add adds w times another reading.
func (r *reading) add(other *reading, w float64) {
	r.where.add(&other.where, w)
	r.cores += w * other.cores
	r.wakeUps += w * other.wakeUps
}

// deviation returns how far a reading and signs are from what was usual before,
// and takes them into that. It returns false for the first ones, which say
// nothing.
func (h *habit) deviation(now *reading, showing *signs, seconds float64) (reading, signs, bool) {
	from, off := *now, *showing
	from.add(&h.usual, -1)
	off.add(&h.signs, -1)
	known := h.seconds > 0
	h.seconds = min(h.seconds+seconds, habitSeconds)
	part := min(1, seconds/h.seconds)
	h.usual.add(&from, part)
	h.signs.add(&off, part)
	return from, off, known
}

// habitOf returns the mean of a VM, which is empty when the VM is new or was
// away: what it was used to may be long past.
func (c *learned) habitOf(vm string, round uint64) *habit {
	h := c.habits[vm]
	if h != nil && h.seen+maxAway < round {
		*h = habit{}
	}
	if h == nil {
		if len(c.habits) >= maxHabits {
			c.forget()
		}
		h = &habit{}
		c.habits[vm] = h
	}
	h.seen = round
	return h
}

// forget drops the VMs that were not seen in the newest two rounds of any, or
// all when there are none of those.
func (c *learned) forget() {
	newest := uint64(0)
	for _, h := range c.habits {
		newest = max(newest, h.seen)
	}
	before := len(c.habits)
	for vm, h := range c.habits {
		if h.seen+1 < newest {
			delete(c.habits, vm)
		}
	}
	if len(c.habits) == before {
		clear(c.habits)
	}
}
