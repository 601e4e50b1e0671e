package agent

import (
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

const (
	// leastBetween is the least time between two switches of a lever by one schedule: a
	// minute, but for what a round may be late. Slots are a minute long at least, so only
	// a clock that jumps asks for more.
	leastBetween = time.Minute - 2*time.Second
	// jump is by how much a clock runs apart from CLOCK_MONOTONIC when it was set.
	jump = 2 * time.Second
)

// switches follow the schedules of a plan.
type switches map[v1alpha1.Lever]*switched

// switched is a lever that is on a schedule.
type switched struct {
	schedule model.Schedule
	on       bool
	// since is when the lever became so, or began to be followed, by the node's clock, and
	// at is the same by CLOCK_MONOTONIC.
	since time.Time
	at    time.Duration
	// flips is true when the lever became so by this schedule.
	flips bool
}

// follow makes the schedules those that are followed, and brings each lever to where its
// schedule has it now. monotonic is the node's CLOCK_MONOTONIC.
func (s switches) follow(schedules []model.Schedule, now time.Time, monotonic time.Duration, log logr.Logger) {
	// Go's own monotonic reading would hide that the clock was set.
	now = now.Round(0)
	wanted := map[v1alpha1.Lever]bool{}
	for i := range schedules {
		schedule := &schedules[i]
		lever := schedule.Lever
		wanted[lever] = true
		one := s[lever]
		if one == nil {
			one = &switched{on: schedule.At(now).On, since: now, at: monotonic}
			s[lever] = one
		}
		if !one.schedule.Equal(schedule) {
			one.schedule, one.flips = *schedule, false
		}
		if one.step(now, monotonic) {
			log.Info("a lever was switched by its schedule", "lever", lever, "on", one.on)
		}
	}
	for lever := range s {
		if !wanted[lever] {
			delete(s, lever)
		}
	}
}

// step brings the lever to where its schedule has it, and reports whether that switched it.
func (s *switched) step(now time.Time, monotonic time.Duration) bool {
	moment := s.schedule.At(now)
	elapsed := monotonic - s.at
	if (now.Sub(s.since) - elapsed).Abs() > jump {
		s.since = now.Add(-elapsed)
	}
	if moment.On == s.on || s.flips && elapsed < leastBetween {
		return false
	}
	s.on, s.since, s.at, s.flips = moment.On, now, monotonic, true
	return true
}

// list what was done, in the order of the levers' names.
func (s switches) list() []model.Switch {
	var list []model.Switch
	for _, one := range s {
		list = append(list, model.Switch{
			Lever: one.schedule.Lever, Seed: one.schedule.Seed, OneIn: one.schedule.OneIn, On: one.on, Since: one.since,
		})
	}
	slices.SortFunc(list, func(x, y model.Switch) int { return strings.Compare(string(x.Lever), string(y.Lever)) })
	return list
}

// next is the time until the next slot of some schedule begins. False: no slot begins.
func (s switches) next(now time.Time) (time.Duration, bool) {
	var least time.Duration
	found := false
	for _, one := range s {
		if wait := one.schedule.Next(now).Sub(now); !found || wait < least {
			least, found = wait, true
		}
	}
	return least, found
}

// switchLevers adds to the orders which levers their schedules have on now.
func (a *Agent) switchLevers(o *orders) error {
	var monotonic time.Duration
	if len(o.schedules) > 0 {
		var err error
		if monotonic, err = a.opts.Host.Monotonic(); err != nil {
			return err
		}
	}
	now := a.opts.Clock.Now()
	a.switches.follow(o.schedules, now, monotonic, a.opts.Log)
	for lever, one := range a.switches {
		o.switched[lever] = switching{on: one.on, steady: one.on && now.Sub(one.since) >= settleTime}
	}
	return nil
}

// boundary signals the start of the next slot when that is before the next round, and
// never otherwise. stop ends the wait for it.
func (a *Agent) boundary() (begins <-chan time.Time, stop func()) {
	wait, is := a.switches.next(a.opts.Clock.Now())
	if !is || wait >= a.opts.Interval {
		return nil, func() {}
	}
	timer := a.opts.Clock.NewTimer(wait)
	return timer.C(), func() { timer.Stop() }
}
