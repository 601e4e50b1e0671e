package agent

import (
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
)

// sleepInterval is over what time sleep is looked at. Each look reads three files for each state of
// each CPU. sleepLogInterval is between two lines of the log that say why it cannot be read.
const (
	sleepInterval    = time.Minute
	sleepLogInterval = time.Hour
)

// sleep watches how the node's CPUs sleep.
type sleep struct {
	host   host.Host
	clock  clock.PassiveClock
	log    logr.Logger
	logged time.Time
	before host.IdleStates
	at     time.Time
	last   *model.Sleep
}

// now returns how the CPUs slept, a minute ago at most. Nil: not known, or not yet.
func (s *sleep) now() *model.Sleep {
	now := s.clock.Now()
	elapsed := now.Sub(s.at)
	if !s.at.IsZero() && elapsed < sleepInterval {
		return s.last
	}
	states, err := s.host.IdleStates()
	s.last = sleepBetween(s.before, states, elapsed)
	if s.before, s.at = states, now; s.last != nil && s.last.IsShallow() {
		s.last.HeldBy, err = s.host.LatencyHolders()
	}
	if err != nil && now.Sub(s.logged) >= sleepLogInterval {
		s.log.Error(err, "how the CPUs sleep is not known")
		s.logged = now
	}
	return s.last
}

// sleepBetween returns how the CPUs slept between two looks. Nil: there are no states, or other CPUs
// than before; the kernel may count a CPU from anew that was off line.
func sleepBetween(before, after host.IdleStates, elapsed time.Duration) *model.Sleep {
	if !before.CPUs.Equal(after.CPUs) || len(after.States) == 0 || len(before.States) != len(after.States) || elapsed <= 0 {
		return nil
	}
	all := elapsed.Seconds() * float64(after.CPUs.Len())
	out := model.Sleep{HaltPoll: after.HaltPoll}
	for i, state := range after.States {
		slept := state.Time - before.States[i].Time
		if slept < 0 || state.Name != before.States[i].Name {
			return nil
		}
		out.States = append(out.States, model.SleepState{Name: state.Name, Share: min(1, slept.Seconds()/all), Disabled: state.Disabled})
	}
	return &out
}
