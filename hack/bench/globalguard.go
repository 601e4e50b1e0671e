package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/joulevirt/joulevirt/test/simulated"
)

// measureGlobalGuard plays made-up histories of VMs to the manager's guard.
func measureGlobalGuard(_ context.Context, env environment) ([]figure, error) {
	const nodes, days = 2, 7
	g := simulated.GlobalGuard(benchSeed, nodes, days)
	if len(g.Found) == 0 {
		return nil, fmt.Errorf("simulated: no lever that hurts was withdrawn")
	}
	slices.Sort(g.Found)
	fmt.Fprintf(env.progress, "simulated: withdrawals by kind of VM %v in VM-days %v; levers that hurt were withdrawn %v after they came on (median); from nodes whose VMs' loads go together %d times in %v days\n",
		g.Withdrawn, g.VMDays, g.Found[len(g.Found)/2], g.Nodes, g.NodeDays)
	return []figure{{"guard_global_false_per_vm_day", g.False(), "withdrawals"}}, nil
}
