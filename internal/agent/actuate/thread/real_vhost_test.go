//go:build vhost

package thread_test

import (
	"testing"

	"github.com/joulevirt/joulevirt/internal/agent/actuate"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/affinity"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/test/hosttest"
)

// These need a kernel older than Linux 6.4 with module vhost_net.
func TestRealVhostWorkersArePinnedAndUndone(t *testing.T) {
	b := newAffinityBench(t)
	b.Process.Vhost()
	b.Process.Vhost()
	workers := b.sample().Workers
	if len(workers) != 2 {
		t.Fatalf("workers %+v, want two", workers)
	}
	for _, w := range workers {
		if w.Switches == 0 || !w.CPUs.Equal(b.both()) || w.ID.PID == b.Process.PID() {
			t.Errorf("worker %+v", w)
		}
	}
	t.Logf("worker %q, number %d, of process %d", workers[0].Name, workers[0].ID.PID, b.Process.PID())
	pins := map[string]affinity.Pins{b.pod.UID: {Threads: model.ThreadCPUs{Vhost: b.other}}}
	b.wantOutcome(pins, actuate.Applied)
	b.want(workers[0].ID, b.other)
	b.want(workers[1].ID, b.other)
	b.want(b.VCPU, b.both())

	b.kill()
	b.start()
	if r := b.apply(pins); r.Outcome != actuate.Applied || r.Changed != 0 {
		t.Errorf("outcome %s with %d writes after a restart, want Applied without any", r.Outcome, r.Changed)
	}
	b.kill()
	b.start()
	if err := b.actuator.Restore(); err != nil {
		t.Fatal(err)
	}
	b.want(workers[0].ID, b.both())

	t.Run("within the cpuset", func(t *testing.T) {
		b.pod.SetCPUs(b.one.String())
		b.want(workers[0].ID, b.one)
		b.wantOutcome(pins, actuate.NoAllowedCore)
		b.pod.SetCPUs(b.both().String())
		b.want(workers[0].ID, b.both())
	})
	t.Run("a new one is bound in the next round", func(t *testing.T) {
		b.wantOutcome(pins, actuate.Applied)
		b.Process.Vhost()
		b.wantOutcome(pins, actuate.Applied)
		for _, w := range b.sample().Workers {
			b.want(w.ID, b.other)
		}
		b.wantOutcome(nil, actuate.Undone)
		for _, w := range b.sample().Workers {
			b.want(w.ID, b.both())
		}
	})
	b.Process.End()
	hosttest.Eventually(t, "the workers to end", func() bool {
		_, err := b.Host.Affinity(workers[0].ID)
		return err != nil
	})
}
