package loop

import (
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/sim"
)

// world is what happens on a node whatever is done about its energy: equal ones happen to
// the node and to its twins.
type world struct {
	random *rand.Rand
	guests []guest
	load   load
}

// relevel is how often the level of the traffic changes.
const relevel = 10 * time.Minute

// newWorld starts all VMs of a node on its hosts.
func newWorld(s *spec, hosts []*sim.Host) (*world, error) {
	w := &world{random: rand.New(rand.NewPCG(s.Seed, 1<<40|uint64(s.index)))}
	var errs []error
	for i := range s.VMs {
		w.guests = append(w.guests, s.guest(i))
		for _, h := range hosts {
			_, err := h.AddVM(w.guests[i].vm)
			errs = append(errs, err)
		}
	}
	return w, errors.Join(errs...)
}

// next moves the traffic, where it is time.
func (w *world) next(now time.Time, hosts []*sim.Host) error {
	since := now.Sub(start())
	if since%relevel != 0 {
		return nil
	}
	level := units.BitsPerSecond(w.load.next(since, w.random))
	var errs []error
	for i := range w.guests {
		traffic := w.guests[i].traffic
		traffic.ToVM *= level
		traffic.FromVM *= level
		for _, h := range hosts {
			errs = append(errs, h.SetTraffic(w.guests[i].vm.PodUID, traffic))
		}
	}
	return errors.Join(errs...)
}

// load is how much of its usual traffic a node has: noise that wanders, as a logarithm, beside
// the time of day and a trend.
type load struct {
	noise float64
}

// next level, each relevel.
func (l *load) next(since time.Duration, random *rand.Rand) float64 {
	const keep, news, day, trend = 0.95, 0.05, 0.3, 0.05
	l.noise = keep*l.noise + news*random.NormFloat64()
	days := since.Hours() / 24
	return (1 + day*math.Sin(2*math.Pi*(days-0.4))) * (1 + trend*days) * math.Exp(l.noise)
}
