package controllers

import (
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/joulevirt/joulevirt/internal/energy"
)

// addMemory adds what keeps the policies' memory and asks for tariffs, and what shows
// both.
func addMemory(mgr ctrl.Manager, o Options, parts *reconcilerParts) error {
	keeper := newLedgerKeeper(ledgerKeeperOptions{
		MemoryOptions: o.Memory, memory: parts.memory,
		cached: mgr.GetClient(), live: mgr.GetAPIReader(), writer: mgr.GetClient(),
		recorder: mgr.GetEventRecorder("joulevirt-manager"), clock: o.Clock, log: mgr.GetLogger().WithName("ledger"),
		changed: parts.news.policyWords,
	})
	parts.decided = keeper.Changed
	tariffs := newTariffWatch(tariffOptions{
		reader:   mgr.GetClient(),
		asker:    energy.Asker{Secrets: liveSecrets{mgr.GetAPIReader()}, NewSource: o.Energy.newSource},
		interval: o.Memory.Read, clock: o.Clock, log: mgr.GetLogger().WithName("tariff"),
		changed: parts.news.policyWords,
	})
	parts.wakePolicy = func() {
		parts.meter.Wake()
		keeper.Wake()
		tariffs.Wake()
	}
	parts.savings = &savingsSources{memory: parts.memory, conditions: keeper.Conditions, tariff: tariffs.Of}
	if err := o.Registry.Register(newSavingsCollector(mgr.GetClient(), parts.savings)); err != nil {
		return fmt.Errorf("register metrics of savings: %w", err)
	}
	if err := mgr.Add(keeper); err != nil {
		return fmt.Errorf("add the keeper of EnergyLedgers: %w", err)
	}
	if err := mgr.Add(tariffs); err != nil {
		return fmt.Errorf("add the watch of tariffs: %w", err)
	}
	return nil
}
