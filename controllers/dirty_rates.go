package controllers

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/energy/prometheus"
	"github.com/joulevirt/joulevirt/internal/observe"
)

// queryDirtyRates returns how fast VMs of nodes write memory, by the first Prometheus server that a
// policy names as energy source. It returns nil if the policy names none.
func queryDirtyRates(ctx context.Context, secrets energy.Secrets, policy *v1alpha1.EnergyPolicy, nodes []string) (rates map[types.NamespacedName]float64, err error) {
	source, err := prometheus.FirstOf(ctx, secrets, observe.EnergySettings(policy))
	if source == nil || err != nil {
		return nil, err
	}
	rates, err = source.DirtyRates(ctx, nodes)
	return rates, errors.Join(err, source.Close())
}
