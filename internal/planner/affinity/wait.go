package affinity

import (
	"math"

	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// mostWait is what a vCPU may wait for, in CPUs, of a VM whose service level says
	// nothing, or more: well below what the agent's guard undoes pins for, as waits of single
	// seconds are twice the mean and more.
	mostWait = 0.1
	// newWait is the part of it that new pins keep to, with what they are to spare, and
	// keptWait the one up to which pins stay: new ones would if they spared nothing.
	newWait, keptWait = 0.75, 1.5
	// burstWait is the same for a vCPU of which it is not known how busy it becomes, in
	// the time that it runs, were it to run all the time.
	burstWait = 0.25
)

// wait is how long a thread waits for each second that it runs, on CPUs of which others use
// a part of each:
//
//	part^(sqrt(2 (cpus+1)) - 1) / (cpus (1 - part))
//
// It is Sakasegawa's approximation of the queue M/M/c (1977), which for one CPU is exact:
// part / (1 - part). That is what a thread waits as well that shares with others in turn
// (M/G/1 with processor sharing and one job that stays: it gets 1 - part of the CPU).
func wait(part, cpus float64) float64 {
	if part >= 1 {
		return math.Inf(1)
	}
	return math.Pow(max(0, part), math.Sqrt(2*(cpus+1))-1) / (cpus * (1 - part))
}

// others returns how much others may use of CPUs for a thread to wait no longer than so, for
// each second that it runs: the inverse of wait.
func others(longest, cpus float64) float64 {
	if cpus <= 1 {
		return cpus * longest / (1 + longest)
	}
	low, high := 0.0, 1.0
	for range 24 {
		if middle := (low + high) / 2; wait(middle, cpus) <= longest {
			low = middle
		} else {
			high = middle
		}
	}
	return cpus * low
}

// endures is the use of a core up to which a vCPU that is pinned to it does not wait for
// too long: kept of all use, and of new pins fresh of what binding leaves, too.
type endures struct{ kept, fresh float64 }

// endures of a vCPU on cores of each size, of a VM whose vCPUs may wait so long. left of its
// demand is what binding leaves.
func (s *state) endures(demand, left float64, longest units.Cores) []endures {
	most := bounded(float64(longest), mostWait)
	if most <= 0 {
		most = mostWait
	}
	list := make([]endures, len(s.node.sizes))
	for i, cpus := range s.node.sizes {
		list[i] = endures{
			kept:  demand + others(keptWait*most/demand, cpus),
			fresh: left + others(newWait*most/left, cpus),
		}
	}
	return list
}

// least takes the lesser of each.
func (e endures) least(o endures) endures {
	return endures{min(e.kept, o.kept), min(e.fresh, o.fresh)}
}
