package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/guard"
	"github.com/joulevirt/joulevirt/internal/model"
)

// A cool-down that ends while the lever is off is told no more, and the lever comes back
// with the next block.
func TestACoolDownThatEndsInAnOffBlock(t *testing.T) {
	s := newScheduled(t, trialOf(v1alpha1.LeverAffinity, func(trial *v1alpha1.TrialSchedule) {
		trial.BlockLength.Duration, trial.Blocks, trial.OffBlocks = 2*time.Minute, 3, []int32{1}
	}))
	s.rounds(100) // the first block began a minute after the start
	now := s.clock.Now()
	s.agent.guarded.Guard = guard.New([]model.Trip{{
		PodUID: scheduledPod(0), Lever: model.LeverAffinity, Symptom: model.SymptomRunDelay, Time: now, Until: now.Add(2 * time.Minute), Count: 1,
	}}, now)
	want := func(state v1alpha1.LeverState, reason, words string) {
		t.Helper()
		if one := s.applied(v1alpha1.LeverAffinity); one.State != state || one.Reason != reason || !strings.Contains(one.Message, words) {
			t.Errorf("%v: status %+v", s.clock.Now(), one)
		}
	}
	s.rounds(1)
	want(v1alpha1.LeverBlocked, v1alpha1.ReasonGuardTripped, "a bound thread waited")
	s.rounds(115)
	want(v1alpha1.LeverBlocked, v1alpha1.ReasonGuardTripped, "a bound thread waited")
	s.rounds(10)
	want(v1alpha1.LeverIdle, reasonSwitchedOff, "since a guard undid it")
	s.statuses = 0
	s.rounds(30)
	if s.statuses != 0 {
		t.Errorf("the status changed %d times", s.statuses)
	}
	s.rounds(60)
	want(v1alpha1.LeverInForce, v1alpha1.ReasonApplied, trialWords)
}
