package api

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/test/cluster"
)

// Agents are updated node by node, and may be newer than the kinds: a word or a field
// of theirs that is not known must not cost the rest of the report.
func testNewerAgents(t *testing.T, c *cluster.Cluster) {
	report := newObject("NodeReport", false)
	if err := c.Client().Create(t.Context(), report); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Client().Delete(context.WithoutCancel(t.Context()), report); err != nil {
			t.Error(err)
		}
	})
	for name, tc := range map[string]struct {
		status  string
		refused bool
	}{
		"words":      {status: `{"topology":{"coreGroups":[{"cores":["0"],"class":"Middling"}]},"power":{"source":"Battery","scope":"Rack"}}`},
		"clocks":     {status: `{"topology":{"clocks":{"governor":"quick_step","followLoad":true,"lowestMegahertz":800,"highestMegahertz":3700,"boost":5}}}`},
		"a riddle":   {status: `{"topology":{"clocks":{"governor":"two words"}}}`, refused: true},
		"backwards":  {status: `{"topology":{"clocks":{"governor":"schedutil","highestMegahertz":-1}}}`, refused: true},
		"a field":    {status: `{"topology":{"coreGroups":[{"cores":["0"],"clusterID":3}],"caches":["L4"]}}`},
		"no word":    {status: `{"power":{"source":"R.A.P.L."}}`, refused: true},
		"an essay":   {status: `{"topology":{"coreGroups":[{"cores":["0"],"class":"Two Words"}]}}`, refused: true},
		"no scope's": {status: `{"power":{"source":"RAPL","scope":"-"}}`, refused: true},
	} {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"status":`+tc.status+`}`))
		err := c.Client().Status().Patch(t.Context(), report.DeepCopy(), patch)
		if tc.refused && !apierrors.IsInvalid(err) || !tc.refused && err != nil {
			t.Errorf("%s: refused %t, want %t: %v", name, err != nil, tc.refused, err)
		}
	}
}
