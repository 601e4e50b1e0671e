package controllers

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// newProofs makes what has levers prove themselves.
func newProofs(mgr ctrl.Manager, o Options, parts *reconcilerParts) *proofWatch {
	return newProofWatch(proofWatchOptions{
		reader: mgr.GetClient(), store: parts.memory, rates: parts.store, past: parts.powers.Past, models: parts.models, potentials: parts.potentials,
		groups: func(ctx context.Context, policy string) ([]proof.Unit, bool) {
			return parts.sights.units(policy), parts.sights.complete(ctx, mgr.GetClient())
		},
		recorder: mgr.GetEventRecorder("joulevirt-manager"), clock: o.Clock,
		pull: o.Pull.Interval, interval: o.Energy.Interval, cpuTime: o.CPUTime,
		replan:  parts.news.plan,
		regroup: func(ctx context.Context, group string) { parts.sights.replan(ctx, group) },
		decided: func(policy string) {
			if parts.decided != nil {
				parts.decided(policy)
			}
		},
	})
}

// planned tells all that want to know with what a node is planned.
func (p *reconcilerParts) planned(node model.Node) {
	p.watch.Planned(node)
	p.proved.Planned(node)
}
