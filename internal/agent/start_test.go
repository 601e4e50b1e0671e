package agent

import (
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// For a while after its start an agent keeps what an earlier one applied, reverts what is no
// longer wanted, and begins nothing.
func TestSimulatedAgentsBeginNothingAtTheirStart(t *testing.T) {
	all := []v1alpha1.Lever{v1alpha1.LeverAffinity, v1alpha1.LeverSlice, v1alpha1.LeverShaping, v1alpha1.LeverBuffering}
	s := newScheduled(t, trialOf(v1alpha1.LeverAffinity, nil))
	s.delay = 2 * time.Minute
	s.kill()
	for range 119 {
		s.round()
		s.want("at the start")
		if _, second := s.on(); second != -1 {
			t.Fatalf("the second VM's tap has window %v", second)
		}
	}
	for _, lever := range all {
		if one := s.applied(lever); one.State != v1alpha1.LeverPending || one.Reason != reasonAgentStarted {
			t.Errorf("status at the start %+v", one)
		}
	}
	if done := s.board.Latest().Rates.Switches; done != nil || isApplied(s.cluster.status) {
		t.Errorf("switches %+v are reported of levers that wait, with conditions %+v", done, s.cluster.status.Conditions)
	}
	s.rounds(2)
	s.want("after the delay", all...)
	if done := s.board.Latest().Rates.Switches; len(done) != 1 || !isApplied(s.cluster.status) {
		t.Errorf("after the delay: switches %+v, conditions %+v", done, s.cluster.status.Conditions)
	}

	s.kill()
	s.rounds(3)
	s.want("what an earlier agent applied", all...)
	if !isApplied(s.cluster.status) {
		t.Errorf("conditions %+v", s.cluster.status.Conditions)
	}
	s.change(func(p *v1alpha1.NodePlan) { p.Spec.Apply = false })
	s.round()
	s.want("reverted at once")
	s.change(func(p *v1alpha1.NodePlan) { p.Spec.Apply = true })
	s.rounds(3)
	s.want("wanted again too early")
	s.rounds(120)
	s.want("after the second delay", all...)
}
