package loop

import (
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/joulevirt/joulevirt/internal/sim"
	"github.com/joulevirt/joulevirt/internal/units"
)

// world is what happens on a node whatever is done about its energy: equal ones happen to
// the node and to its twins.
type world struct {
	spec   *spec
	random *rand.Rand
	slots  []slot
	load   load
	// fault of the meter, until when.
	fault      sim.Fault
	faultUntil time.Time
}

type slot struct {
	guest
	number int
	// grouped VMs are of the node's group, which gives them their traffic.
	grouped bool
	// absent VMs are between one that went and the next that comes.
	absent bool
	// until the VM goes, or the next comes. Zero: never.
	until time.Time
}

func newWorld(s *spec) *world {
	return &world{spec: s, random: rand.New(rand.NewPCG(s.seed, 1<<40|uint64(s.index))), slots: make([]slot, s.VMs), load: load{flat: s.Flat}}
}

const (
	// relevel is how often the level of the traffic changes.
	relevel = 10 * time.Minute
	// life of those VMs that come and go, on average, and the time between two.
	life, gap = 12 * time.Hour, 10 * time.Minute
	// movingSlots is how few slots have VMs that go: one of so many.
	movingSlots = 5
	// failing is the time between two failures of a node's meter, on average, and failure
	// how long one lasts.
	failing, failure = 60 * time.Hour, time.Hour
)

// begin says which VMs there are at first.
func (w *world) begin() {
	for i := range w.slots {
		s := &w.slots[i]
		s.grouped = w.spec.grouped(i)
		s.guest = w.spec.guest(i, 0)
		if i%movingSlots == 0 && !w.spec.Quiet {
			s.until = start().Add(w.after(life))
		}
	}
}

// run starts the VMs that there are now on hosts that have none.
func (w *world) run(hosts []twin) error {
	var errs []error
	for i := range w.slots {
		if !w.slots[i].absent {
			errs = append(errs, add(hosts, w.slots[i].vm))
		}
	}
	return errors.Join(errs...)
}

// after is an exponential time, in whole minutes.
func (w *world) after(mean time.Duration) time.Duration {
	return time.Duration(w.random.ExpFloat64() * float64(mean)).Truncate(time.Minute)
}

// next lets happen what happens at a minute. moved is true when VMs came or went.
func (w *world) next(now time.Time, hosts []twin) (moved bool, err error) {
	var errs []error
	for i := range w.slots {
		s := &w.slots[i]
		if s.until.IsZero() || now.Before(s.until) {
			continue
		}
		moved = true
		if s.absent {
			s.number++
			s.guest, s.absent, s.until = w.spec.guest(i, s.number), false, now.Add(w.after(life))
			errs = append(errs, add(hosts, s.vm))
			continue
		}
		s.absent, s.until = true, now.Add(gap)
		for _, h := range hosts {
			errs = append(errs, h.RemoveVM(s.vm.PodUID))
		}
	}
	if since := now.Sub(start()); since%relevel == 0 {
		errs = append(errs, w.relevel(since, hosts))
	}
	w.fail(now)
	return moved, errors.Join(errs...)
}

// relevel moves the traffic.
func (w *world) relevel(since time.Duration, hosts []twin) error {
	level := units.BitsPerSecond(w.load.next(since, w.random))
	var errs []error
	for i := range w.slots {
		if w.slots[i].absent || w.slots[i].grouped {
			continue
		}
		traffic := w.slots[i].traffic
		traffic.ToVM *= level
		traffic.FromVM *= level
		for _, h := range hosts {
			errs = append(errs, h.SetTraffic(w.slots[i].vm.PodUID, traffic))
		}
	}
	return errors.Join(errs...)
}

// load is how much of its usual traffic a node has: noise that wanders, as a logarithm, beside
// the time of day and a trend.
type load struct {
	noise float64
	// fixed level. 0: it moves.
	fixed float64
	// flat is true when there is only the noise.
	flat bool
}

// next level, each relevel.
func (l *load) next(since time.Duration, random *rand.Rand) float64 {
	const keep, news = 0.95, 0.05
	day, trend := 0.3, 0.05
	switch {
	case l.fixed > 0:
		return l.fixed
	case l.flat:
		day, trend = 0, 0
	}
	l.noise = keep*l.noise + news*random.NormFloat64()
	days := since.Hours() / 24
	return (1 + day*math.Sin(2*math.Pi*(days-0.4))) * (1 + trend*days) * math.Exp(l.noise)
}

// fail lets the meter fail at times, in one of three ways: silent, stuck, or lying.
func (w *world) fail(now time.Time) {
	faults := []sim.Fault{sim.MeterUnreadable, sim.MeterFrozen, sim.MeterLies}
	fails, which := w.random.Float64() < time.Minute.Hours()/failing.Hours(), w.random.IntN(len(faults))
	switch {
	case w.fault != sim.NoFault && !now.Before(w.faultUntil):
		w.fault = sim.NoFault
	case w.fault == sim.NoFault && fails && !w.spec.Quiet:
		w.fault, w.faultUntil = faults[which], now.Add(failure)
	}
}

func add(hosts []twin, vm sim.VM) error {
	var errs []error
	for _, h := range hosts {
		_, err := h.AddVM(vm)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
