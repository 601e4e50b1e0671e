package loop

import (
	"errors"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/sim"
	"github.com/joulevirt/joulevirt/internal/units"
)

// lacks is a set of levers, one bit each in their order: those that a twin lacks.
type lacks uint8

// Hosts of one node: the node itself, and twins to which all happens alike but what the
// levers that they lack do.
const (
	actual          lacks = 0
	withoutAffinity lacks = 1 << (iota - 1)
	withoutBuffering
	withoutShares
	allHosts
	withoutAny = allHosts - 1
)

// lacking is the twin that lacks a lever only.
func lacking(lever model.Lever) lacks { return 1 << slices.Index(levers(), lever) }

// joules of all hosts, by what they lack. Of those that a node has none of they are 0.
type joules [allHosts]float64

// twins is the node as its agent sees it: what a lever does is done to the twins that do
// not lack it, too.
type twins struct {
	*sim.Host
	// each host by what it lacks, where there are several in all that they stand for.
	each []twin
	// of are the hosts by what they lack. Nil: there is none.
	of [allHosts]*sim.Host
}

type twin struct {
	*sim.Host
	lacks lacks
}

// newTwins returns the node and the twins by which it is told what each of its levers does,
// or, if every is true, what any of them do together.
func newTwins(s *spec, from time.Time, every bool) (*twins, error) {
	t := &twins{}
	for without := range allHosts {
		alone := without&(without-1) == 0
		switch {
		case s.group == "" && without&withoutShares != 0:
			t.of[without] = t.of[without&^withoutShares] // of no group: no share to be without
			continue
		case s.group != "" && !every && !alone && without != withoutAny:
			continue
		}
		h, err := s.host(from)
		if err != nil {
			return nil, err
		}
		t.of[without] = h
		t.each = append(t.each, twin{h, without})
	}
	t.Host = t.of[actual]
	return t, nil
}

// advance lets time pass on all hosts, in which packets may be held.
func (t *twins) advance(d time.Duration) error {
	const longer = 10 * time.Second
	var errs []error
	for _, h := range t.each {
		errs = append(errs, h.KeepBuffering(d+longer))
		h.Advance(d)
	}
	return errors.Join(errs...)
}

// but does something to all hosts that do not lack a lever.
func (t *twins) but(lever lacks, do func(*sim.Host) error) error {
	var errs []error
	for _, h := range t.each {
		if h.lacks&lever == 0 {
			errs = append(errs, do(h.Host))
		}
	}
	return errors.Join(errs...)
}

// SetAffinity implements host.Host.
func (t *twins) SetAffinity(thread host.TaskID, cpus units.CPUSet) error {
	return t.but(withoutAffinity, func(h *sim.Host) error { return h.SetAffinity(thread, cpus) })
}

// ClearAffinity implements host.Host.
func (t *twins) ClearAffinity(thread host.TaskID) error {
	return t.but(withoutAffinity, func(h *sim.Host) error { return h.ClearAffinity(thread) })
}

// Buffer implements host.Host.
func (t *twins) Buffer(process host.TaskID, tap string, as model.Buffering) error {
	return t.but(withoutBuffering, func(h *sim.Host) error { return h.Buffer(process, tap, as) })
}

// Unbuffer implements host.Host.
func (t *twins) Unbuffer(process host.TaskID, tap string) error {
	return t.but(withoutBuffering, func(h *sim.Host) error { return h.Unbuffer(process, tap) })
}

// joules of all hosts since the start.
func (t *twins) joules() (j joules) {
	for i, h := range t.of {
		if h != nil {
			j[i] = float64(h.Joules())
		}
	}
	return j
}
