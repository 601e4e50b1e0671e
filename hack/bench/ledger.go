package main

import (
	"context"
	"fmt"

	"github.com/joulevirt/joulevirt/internal/verify/ledger/ledgertest"
)

// measureLedgerCoverage counts on how many simulated fleets the ledger's interval of 95 %
// covers what they truly saved. Levers are on only where they were seen to save, and are
// measured again in the middle.
func measureLedgerCoverage(_ context.Context, env environment) ([]figure, error) {
	const fleets = 2000
	kind := ledgertest.Fleet{Nodes: 10, Classes: 3, Between: 0.02, Days: 14, Trials: 2, OnlyAdopted: true}
	fmt.Fprintf(env.progress, "bench: the ledgers of %d simulated fleets of %d nodes, for %d days\n",
		fleets, kind.Nodes*kind.Classes, kind.Days)
	got := ledgertest.Cover(kind, fleets)
	fmt.Fprintf(env.progress, "simulated: covered are the whole saving of %.1f %% of %d fleets, that of the last month of %.1f %%, and of single nodes %.1f %%\n",
		got.Whole, got.Fleets, got.Last, got.Node)
	return []figure{{"ledger_coverage_pct", got.Whole, "%"}}, nil
}
