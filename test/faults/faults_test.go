//go:build e2e

package faults

import "testing"

// TestFaults: whatever fails, no request of the group does, and no node stays changed.
func TestFaults(t *testing.T) {
	f := startScene(t)
	for _, fault := range []struct {
		name    string
		provoke func(*fault)
	}{
		{"the agent is killed in its writes", (*fault).agentKilledInWrites},
		{"the manager is killed in a new plan", (*fault).managerKilledInPlan},
		{"two managers lead", (*fault).twoManagers},
		{"the API server is away", (*fault).apiServerAway},
		{"etcd is full", (*fault).etcdFull},
		{"Prometheus fails", (*fault).prometheusFails},
		{"the journal's disk is full", (*fault).diskFull},
		{"clocks are set", (*fault).clocksSet},
		{"the node restarts", (*fault).nodeRestarts},
		{"names are hostile", (*fault).hostileNames},
		{"an agent's token is used for other nodes", (*fault).foreignToken},
	} {
		if !f.try(fault.name, fault.provoke) {
			t.FailNow() // what it left would fail the others
		}
	}
	f.attempt("the product is removed while a node is cut off", (*fault).uninstall)
	counts := f.traffic.Stop()
	t.Log(counts)
	t.Logf("figure faults_tried %d faults", f.tried)
	t.Logf("figure fault_requests_lost %d requests", counts.Failures)
	t.Logf("figure fault_nodes_left_changed %d nodes", f.changed)
	if counts.Failures > 0 || f.changed > 0 {
		t.Error("both must be 0")
	}
}
