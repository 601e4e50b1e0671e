package controllers

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

const (
	// mostEvents of one profile in eventPeriod: the status has all, events are for
	// who watches.
	mostEvents  = 3
	eventPeriod = time.Minute
	// newsOfDisturbance is the age at which a verdict is none any more: a VM that is
	// told about because others recovered was disturbed long before.
	newsOfDisturbance = 5 * time.Minute
)

// tellDisturbed sends an event for each VM that the profile's status names as
// disturbed and did not before.
func (r *VMNetworkProfileReconciler) tellDisturbed(profile *v1alpha1.VMNetworkProfile, before *v1alpha1.InterferenceStatus) {
	if profile.Status.Interference == nil {
		return
	}
	type verdict struct {
		name    string
		verdict v1alpha1.Interference
	}
	told := map[verdict]bool{}
	if before != nil {
		for _, vm := range before.Examples {
			told[verdict{vm.Name, vm.Verdict}] = true
		}
	}
	key := types.NamespacedName{Namespace: profile.Namespace, Name: profile.Name}
	for _, vm := range profile.Status.Interference.Examples {
		if told[verdict{vm.Name, vm.Verdict}] || r.Clock.Since(vm.Since.Time) > newsOfDisturbance || !r.pace.allow(key, r.Clock) {
			continue
		}
		r.Recorder.Eventf(profile, nil, corev1.EventTypeWarning, string(vm.Verdict), "Detect", "VM %s on node %s: %s", vm.Name, vm.Node, vm.Message)
	}
}

// eventPace bounds how many events a profile gets. The zero value is ready.
type eventPace struct {
	mu    sync.Mutex
	since time.Time
	sent  map[types.NamespacedName]int
}

// allow tells whether one more event of a profile may be sent now.
func (p *eventPace) allow(profile types.NamespacedName, clk clock.PassiveClock) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sent == nil || clk.Since(p.since) >= eventPeriod {
		p.since, p.sent = clk.Now(), map[types.NamespacedName]int{}
	}
	p.sent[profile]++
	return p.sent[profile] <= mostEvents
}
