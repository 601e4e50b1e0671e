package agent

import (
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

// Times that Go's clock gives are compared by its monotonic reading, as which no clock was
// ever set: none may be kept with it.
func TestSinceIsByTheWallClockAlone(t *testing.T) {
	affinity := scheduleOfTrial(t, trialOf(v1alpha1.LeverAffinity, func(s *v1alpha1.TrialSchedule) {
		s.Start.Time, s.Otherwise = time.Now().Add(time.Hour), true
	}))
	s := switches{}
	s.follow([]model.Schedule{affinity}, time.Now(), 0, logr.Discard())
	begun := s.tell()[0]
	affinity.Otherwise = false
	s.follow([]model.Schedule{affinity}, time.Now(), time.Hour, logr.Discard())
	for _, told := range []model.Switch{begun, s.tell()[0]} {
		if told.Since != told.Since.Round(0) {
			t.Errorf("on: %t, since %v", told.On, told.Since)
		}
	}
	if was := s.tell()[0]; begun.On == was.On {
		t.Errorf("%+v was not switched", was)
	}
}
