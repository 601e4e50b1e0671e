//go:build e2e

package faults

import "testing"

// provocation is a fault with its name.
type provocation struct {
	name    string
	provoke func(*fault)
}

// TestFaultsOfAgents provokes what ends or misleads agents, and what is on their nodes.
func TestFaultsOfAgents(t *testing.T) {
	provoke(t,
		provocation{"the agent is killed in its writes", (*fault).agentKilledInWrites},
		provocation{"the journal's disk is full", (*fault).diskFull},
		provocation{"the node restarts", (*fault).nodeRestarts},
		provocation{"names are hostile", (*fault).hostileNames},
		provocation{"an agent's token is used for other nodes", (*fault).foreignToken},
	)
}

// TestFaultsOfManagers provokes what ends managers, and has two of them lead.
func TestFaultsOfManagers(t *testing.T) {
	provoke(t,
		provocation{"the manager is killed in a new plan", (*fault).managerKilledInPlan},
		provocation{"two managers lead", (*fault).twoManagers},
		provocation{"clocks are set", (*fault).clocksSet},
	)
}

// TestFaultsOfTheCluster provokes what the API server, etcd and Prometheus do, and removes the
// product while a node is cut off.
func TestFaultsOfTheCluster(t *testing.T) {
	provoke(t,
		provocation{"the API server is away", (*fault).apiServerAway},
		provocation{"etcd is full", (*fault).etcdFull},
		provocation{"Prometheus fails", (*fault).prometheusFails},
		provocation{"the product is removed while a node is cut off", (*fault).uninstall}, // the last: it is gone then
	)
}

// provoke provokes faults one after the other. Whatever fails, no request of the group does, and no
// node stays changed.
func provoke(t *testing.T, faults ...provocation) {
	t.Helper()
	f := startScene(t)
	for _, fault := range faults {
		if !f.try(fault.name, fault.provoke) {
			t.FailNow() // what it left would fail the others
		}
	}
	counts := f.traffic.Stop()
	t.Log(counts)
	t.Logf("figure faults_tried %d faults", f.tried)
	t.Logf("figure fault_requests_lost %d requests", counts.Failures)
	t.Logf("figure fault_nodes_left_changed %d nodes", f.changed)
	if counts.Failures > 0 || f.changed > 0 {
		t.Error("both must be 0")
	}
}
