package agent

import (
	"testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// A VM of pool Compute waits while CPUs of pool Network idle: that is what the pools are for.
// One of pool Network has nothing to wait for.
func TestPoolsAreKeptThoughComputeWaits(t *testing.T) {
	for pool, want := range map[v1alpha1.Pool]int{v1alpha1.PoolCompute: 0, v1alpha1.PoolNetwork: 1, "": 1} {
		s := guardedHost(t)
		c := s.agent.opts.Cluster.(*cluster)
		c.change(func() {
			plan := c.plan.DeepCopy()
			plan.Spec.Pools = &v1alpha1.PoolCores{NetworkCPUs: "0-1,3-31", ComputeCPUs: "2"}
			plan.Spec.VMs[0].Pool = pool
			c.plan = plan
		})
		s.rounds(5)
		s.hog(1)
		s.rounds(30)
		if trips := s.board.Latest().Rates.Trips; len(trips) != want {
			t.Errorf("pool %q: trips %+v, want %d", pool, trips, want)
		}
	}
}
