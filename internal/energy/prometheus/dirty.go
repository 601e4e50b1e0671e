package prometheus

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/types"
)

// nodesAtOnce is of how many nodes one answer is asked for: with 300 VMs each it is within its
// bounds.
const nodesAtOnce = 50

// DirtyRates returns how fast VMs that ran on nodes wrote their memory within the last half hour,
// at most, in bytes/s: KubeVirt samples it for a second whenever it is scraped. VMs of which there
// is no sample are left out. An error wraps an energy.Refusal.
//
// Whoever has an exporter scraped may say that a VM writes faster, which keeps it where it is, but
// not that it writes more slowly.
func (s *Source) DirtyRates(ctx context.Context, nodes []string) (map[types.NamespacedName]float64, error) {
	ask := func(ctx context.Context, query string, at time.Time) (model.Value, error) {
		answer, err := s.client.query(ctx, query, at)
		if err != nil {
			return nil, err
		}
		return answer.value(), nil
	}
	rates := map[types.NamespacedName]float64{}
	for some := range slices.Chunk(nodes, nodesAtOnce) {
		vector, err := askVector(ctx, ask, dirtyRateQuery(some), time.Time{})
		if err != nil {
			return nil, fmt.Errorf("query KubeVirt's dirty rates: %w", err)
		}
		for _, sample := range vector {
			namespace := cmp.Or(sample.Metric["exported_namespace"], sample.Metric["namespace"])
			vm, rate := types.NamespacedName{Namespace: string(namespace), Name: string(sample.Metric["name"])}, float64(sample.Value)
			if sample.Histogram == nil && rate >= 0 && !math.IsInf(rate, 1) {
				rates[vm] = max(rates[vm], rate)
			}
		}
	}
	return rates, nil
}

func dirtyRateQuery(nodes []string) string {
	var quoted []string
	for _, node := range nodes {
		quoted = append(quoted, regexp.QuoteMeta(node))
	}
	// A server that does not honor the labels of those it scrapes puts exported_ before them.
	return fmt.Sprintf("max by (namespace, exported_namespace, name) (max_over_time(kubevirt_vmi_dirty_rate_bytes_per_second{node=~%q}[30m]))", strings.Join(quoted, "|"))
}
