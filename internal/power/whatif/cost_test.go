package whatif

import (
	"errors"
	"math"
	"testing"

	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/power/curve"
	"github.com/joulevirt/joulevirt/internal/units"
)

// A table is what it was sampled from, and concave, as its curve is.
func TestCostTable(t *testing.T) {
	const bitsPerPacket, most = 8e3, 1e9
	host := hostOf(t, priors(t))
	table, err := host.CostTable(oneVCPU(), bitsPerPacket, most)
	if err != nil {
		t.Fatal(err)
	}
	coefficients := host.Model.Coefficients()
	exact := func(bits float64) float64 {
		cost := host.Curves.Cost(oneVCPU(), curve.Rate{Packets: units.PacketsPerSecond(bits / bitsPerPacket), Bits: units.BitsPerSecond(bits)})
		return float64(coefficients.PerBusyCore)*float64(cost.Cores) + float64(coefficients.PerWakeUp)*float64(cost.WakeUps)
	}
	span := exact(most) - exact(0)
	slope := math.Inf(1)
	for i := range 500 {
		from, to := most*float64(i)/500, most*float64(i+1)/500
		if off := math.Abs(float64(table.At(units.BitsPerSecond(to))) - exact(to)); off > 0.005*span {
			t.Errorf("%v W off at %v bit/s, of %v W from nothing to full", off, to, span)
		}
		now := float64(table.At(units.BitsPerSecond(to)) - table.At(units.BitsPerSecond(from)))
		if now > slope*(1+1e-9) {
			t.Errorf("steeper at %v bit/s than below", to)
		}
		slope = now
	}
	if got, want := float64(table.At(0)), exact(0); math.Abs(got-want) > 1e-9 {
		t.Errorf("%v W without traffic, want %v", got, want)
	}
	if beyond := table.At(2 * most); !(beyond > table.At(most)) {
		t.Errorf("%v W at twice the last rate, %v at it", beyond, table.At(most))
	}
}

func TestCostTableUnknown(t *testing.T) {
	host := hostOf(t, priors(t))
	for name, ask := range map[string]func() error{
		"no model":    func() error { _, err := Host{Curves: host.Curves}.CostTable(oneVCPU(), 8e3, 1e9); return err },
		"no curves":   func() error { _, err := Host{Model: &power.NodeModel{}}.CostTable(oneVCPU(), 8e3, 1e9); return err },
		"no packets":  func() error { _, err := host.CostTable(oneVCPU(), 0, 1e9); return err },
		"no rate":     func() error { _, err := host.CostTable(oneVCPU(), 8e3, 0); return err },
		"not a rate":  func() error { _, err := host.CostTable(oneVCPU(), 8e3, units.BitsPerSecond(math.NaN())); return err },
		"not a size":  func() error { _, err := host.CostTable(oneVCPU(), math.NaN(), 1e9); return err },
		"endless":     func() error { _, err := host.CostTable(oneVCPU(), 8e3, units.BitsPerSecond(math.Inf(1))); return err },
		"endless too": func() error { _, err := host.CostTable(oneVCPU(), math.Inf(1), 1e9); return err },
	} {
		var unknown *Unknown
		if err := ask(); !errors.As(err, &unknown) {
			t.Errorf("%s: %v, want an Unknown", name, err)
		}
	}
}
