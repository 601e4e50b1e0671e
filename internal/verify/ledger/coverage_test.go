package ledger_test

import (
	"fmt"
	"testing"

	"github.com/joulevirt/joulevirt/internal/verify/ledger/ledgertest"
)

func TestIntervalsCoverWhatFleetsTrulySaved(t *testing.T) {
	for _, test := range []struct {
		nodes   int
		between float64
		trials  int
		adopted bool
		// most is how often the interval of the whole may cover: evidence that is measured
		// again counts as if its errors were the same, which is too careful.
		most float64
	}{
		{2, 0.03, 1, false, 97},
		{5, 0, 1, true, 97},
		{5, 0.03, 1, false, 97},
		{5, 0.03, 3, true, 99},
		{20, 0.03, 1, true, 97},
	} {
		t.Run(fmt.Sprintf("%+v", test), func(t *testing.T) {
			t.Parallel()
			got := ledgertest.Cover(ledgertest.Fleet{
				Nodes: test.nodes, Classes: 2, Between: test.between, Days: 4, Trials: test.trials, OnlyAdopted: test.adopted,
			}, 1200*8/max(8, test.nodes))
			t.Logf("simulated: %+v", got)
			for name, percent := range map[string]float64{"all time": got.Whole, "the last month": got.Last, "one node": got.Node} {
				if percent < 92.5 || name != "one node" && percent > test.most {
					t.Errorf("the 95 %% interval of %s covers the truth on %.1f %% of %d fleets", name, percent, got.Fleets)
				}
			}
		})
	}
}
