package loop

import (
	"errors"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/sim"
)

// Hosts of one node: the node itself, and twins to which all happens alike but what the levers
// that they lack do.
const (
	actual = iota
	withoutAffinity
	withoutBuffering
	withoutAny
	// oracle has what levers do that save on it from the first time on, and nothing of others.
	oracle
	allHosts
)

// levers of the loop.
func levers() []v1alpha1.Lever {
	return []v1alpha1.Lever{v1alpha1.LeverAffinity, v1alpha1.LeverBuffering}
}

// lacking is the twin that lacks a lever only.
func lacking(lever v1alpha1.Lever) int { return 1 + slices.Index(levers(), lever) }

// joules of all hosts.
type joules [allHosts]float64

// twins is the node as its agent sees it: what a lever does is done to the twins that do not
// lack it, too.
type twins struct {
	*sim.Host
	of []*sim.Host
	// harm is true where affinity costs energy.
	harm bool
}

func newTwins(s *spec) (*twins, error) {
	t := &twins{harm: s.kind.harm.Affinity > 0}
	for range allHosts {
		h, err := s.host()
		if err != nil {
			return nil, err
		}
		t.of = append(t.of, h)
	}
	t.Host = t.of[actual]
	return t, nil
}

// advance lets time pass on all hosts, in which packets may be held.
func (t *twins) advance(d time.Duration) error {
	const longer = 10 * time.Second
	var errs []error
	for _, h := range t.of {
		errs = append(errs, h.ExtendLease(d+longer))
		h.Advance(d)
	}
	return errors.Join(errs...)
}

// but does something to all hosts that do not lack a lever.
func (t *twins) but(lever v1alpha1.Lever, do func(*sim.Host) error) error {
	var errs []error
	for i, h := range t.of {
		if i != withoutAny && i != lacking(lever) && i != oracle {
			errs = append(errs, do(h))
		}
	}
	return errors.Join(errs...)
}

// add does something that a lever adds, which the oracle keeps.
func (t *twins) add(lever v1alpha1.Lever, do func(*sim.Host) error) error {
	if lever == v1alpha1.LeverAffinity && t.harm {
		return t.but(lever, do)
	}
	return errors.Join(t.but(lever, do), do(t.of[oracle]))
}

// SetAffinity implements host.Host.
func (t *twins) SetAffinity(thread host.TaskID, cpus units.CPUSet) error {
	return t.add(v1alpha1.LeverAffinity, func(h *sim.Host) error { return h.SetAffinity(thread, cpus) })
}

// ClearAffinity implements host.Host.
func (t *twins) ClearAffinity(thread host.TaskID) error {
	return t.but(v1alpha1.LeverAffinity, func(h *sim.Host) error { return h.ClearAffinity(thread) })
}

// Buffer implements host.Host.
func (t *twins) Buffer(process host.TaskID, tap string, as model.Buffering) error {
	if as.Window == 0 { // off, but for floods
		return t.but(v1alpha1.LeverBuffering, func(h *sim.Host) error { return h.Buffer(process, tap, as) })
	}
	return t.add(v1alpha1.LeverBuffering, func(h *sim.Host) error { return h.Buffer(process, tap, as) })
}

// Unbuffer implements host.Host.
func (t *twins) Unbuffer(process host.TaskID, tap string) error {
	return t.but(v1alpha1.LeverBuffering, func(h *sim.Host) error { return h.Unbuffer(process, tap) })
}

// joules of all hosts since the start.
func (t *twins) joules() (j joules) {
	for i, h := range t.of {
		j[i] = float64(h.Joules())
	}
	return j
}
