package controllers

import (
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/joulevirt/joulevirt/internal/observe/disturbance"
	"github.com/joulevirt/joulevirt/internal/observe/flood"
	"github.com/joulevirt/joulevirt/internal/observe/tuning"
	"github.com/joulevirt/joulevirt/internal/planner/interference"
)

// missedRounds is how many pulls in a row may miss a VM before it is forgotten.
const missedRounds = 8

// addDisturbances adds what tells the VMs that are kept from their network work, or
// flooded, and keeps what was seen of their packets.
func addDisturbances(mgr ctrl.Manager, o Options, parts *reconcilerParts) error {
	parts.disturbances = disturbance.NewStore(o.Clock, missedRounds*o.Pull.Interval, func() disturbance.Detector { return &interference.History{} })
	parts.floods = flood.NewStore(o.Clock, missedRounds*o.Pull.Interval, o.Pull.Settle)
	parts.tuning = tuning.NewStore(o.Clock, missedRounds*o.Pull.Interval)
	parts.disturbed = newDisturbanceWatch(disturbanceOptions{
		reader: mgr.GetClient(), store: parts.disturbances, floods: parts.floods, tuning: parts.tuning,
		interval: o.Pull.Interval, settle: o.Pull.Settle, clock: o.Clock, log: mgr.GetLogger().WithName("disturbances"),
		changed: parts.news.profile, replan: parts.news.plan,
	})
	if err := o.Registry.Register(newDisturbanceCollector(parts.disturbed.Seen)); err != nil {
		return fmt.Errorf("register metrics of disturbances: %w", err)
	}
	if err := mgr.Add(parts.disturbed); err != nil {
		return fmt.Errorf("add the watch of disturbances: %w", err)
	}
	return nil
}
