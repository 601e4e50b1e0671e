package loop

import (
	"errors"
	"time"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/sim"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Hosts of one node: the node itself, and twins to which all happens alike but what a lever
// does.
const (
	actual = iota
	withoutAffinity
	withoutBuffering
	withoutAny
	allHosts
)

// lacking is the twin that lacks a lever only.
func lacking(lever model.Lever) int {
	if lever == model.LeverAffinity {
		return withoutAffinity
	}
	return withoutBuffering
}

// twins is the node as its agent sees it: what a lever does is done to the twins that do
// not lack it, too.
type twins struct {
	*sim.Host
	all [allHosts]*sim.Host
}

func newTwins(s *spec) (*twins, error) {
	t := &twins{}
	for i := range t.all {
		h, err := s.host()
		if err != nil {
			return nil, err
		}
		t.all[i] = h
	}
	t.Host = t.all[actual]
	return t, nil
}

// advance lets time pass on all hosts, in which packets may be held.
func (t *twins) advance(d time.Duration) error {
	const longer = 10 * time.Second
	var errs []error
	for _, h := range t.all {
		errs = append(errs, h.KeepBuffering(d+longer))
		h.Advance(d)
	}
	return errors.Join(errs...)
}

// SetAffinity implements host.Host.
func (t *twins) SetAffinity(thread host.TaskID, cpus units.CPUSet) error {
	return errors.Join(t.Host.SetAffinity(thread, cpus), t.all[withoutBuffering].SetAffinity(thread, cpus))
}

// ClearAffinity implements host.Host.
func (t *twins) ClearAffinity(thread host.TaskID) error {
	return errors.Join(t.Host.ClearAffinity(thread), t.all[withoutBuffering].ClearAffinity(thread))
}

// Buffer implements host.Host.
func (t *twins) Buffer(process host.TaskID, tap string, as model.Buffering) error {
	return errors.Join(t.Host.Buffer(process, tap, as), t.all[withoutAffinity].Buffer(process, tap, as))
}

// Unbuffer implements host.Host.
func (t *twins) Unbuffer(process host.TaskID, tap string) error {
	return errors.Join(t.Host.Unbuffer(process, tap), t.all[withoutAffinity].Unbuffer(process, tap))
}

// joules of all hosts since the start.
func (t *twins) joules() (j [allHosts]float64) {
	for i, h := range t.all {
		j[i] = float64(h.Joules())
	}
	return j
}
