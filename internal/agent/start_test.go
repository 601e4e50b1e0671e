package agent

import (
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/joulevirt/joulevirt/internal/agent/agenttest"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
)

// startOn is the start of an agent, from what is on disk. The options lack what is the same
// for all.
func startOn(t *testing.T, dir string, o Options) (*Agent, *journal.Journal) {
	t.Helper()
	j, err := journal.Open(dir, "boot")
	if err != nil {
		t.Fatal(err)
	}
	o.Node, o.Interval, o.StaleAfter, o.Libvirt, o.Prior, o.Log = "node1", time.Second, time.Minute, agenttest.NoLibvirt{}, noPrior, logr.Discard()
	a, err := New(o, j)
	if err != nil {
		t.Fatal(err)
	}
	return a, j
}
