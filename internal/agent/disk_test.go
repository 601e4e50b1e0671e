package agent

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/hosttest"
)

// wantFailure waits until condition Applied is False for a failure with these words.
func (b *bench) wantFailure(words string) {
	b.Helper()
	hosttest.Eventually(b, "condition Applied that has "+words, func() bool {
		b.cluster.mu.Lock()
		defer b.cluster.mu.Unlock()
		c := meta.FindStatusCondition(b.cluster.status.Conditions, v1alpha1.ConditionApplied)
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonApplyFailed && strings.Contains(c.Message, words)
	})
}

// What cannot be journaled is not done, and what is to be undone is undone all the same.
func TestAFullDisk(t *testing.T) {
	b := newBench(t)
	disk := hosttest.NewDisk(t)
	b.dir = disk.Dir
	const words = "no space left on device"
	free := disk.Fill()
	end := b.run()
	defer func() { _ = end() }() // when the test failed
	b.wantFailure(words)
	b.rounds(3)
	b.want("nothing to be bound without a journal", b.both())

	free()
	b.want("the pin, with space again", b.one)
	b.wantApplied(metav1.ConditionTrue, v1alpha1.ReasonApplied)

	free = disk.Fill()
	plan := b.cluster.plan
	moved := plan.DeepCopy()
	moved.Generation++
	moved.Spec.VMs[0].Affinity.VCPUs[0].CPUs = b.other.String()
	b.cluster.change(func() { b.cluster.plan = moved })
	b.wantFailure(words)
	b.rounds(3)
	b.want("the pin to stay where the journal has it", b.one)
	b.cluster.change(func() { b.cluster.plan = nil })
	b.want("the pin to go though the disk is full", b.both())

	b.cluster.change(func() { b.cluster.plan = plan })
	b.wantFailure(words)
	free()
	b.want("the pin to come back", b.one)
	disk.Fill()
	if err := end(); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("the agent ended with %v, want that the journal still has what was undone", err)
	}
	b.want("the pin to go at the end though the disk is full", b.both())
}
