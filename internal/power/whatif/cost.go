package whatif

import (
	"math"
	"sort"

	"github.com/joulevirt/joulevirt/internal/power/curve"
	"github.com/joulevirt/joulevirt/internal/units"
)

// tablePoints is how many rates a CostTable is sampled at, beside none at all. It
// is then within some thousandths of what it is a table of.
const tablePoints = 48

// CostTable is what one VM of a class costs its node as a function of its rate:
// the power of the CPU time and of the wake-ups that it causes, the idle VM's
// included. Between the rates that were sampled it is straight.
type CostTable struct {
	rates []float64
	watts []float64
}

// CostTable samples the cost of a VM from no traffic to a rate, with packets of a
// size. Rates lie closer where they are low: there costs bend most. The error is
// an Unknown.
func (h Host) CostTable(key curve.Key, bitsPerPacket float64, upTo units.BitsPerSecond) (CostTable, error) {
	if err := h.usable(); err != nil {
		return CostTable{}, err
	}
	if !(bitsPerPacket > 0) || math.IsInf(bitsPerPacket, 1) || !(upTo > 0) || math.IsInf(float64(upTo), 1) {
		return CostTable{}, unknown("packets of %v bit, or a rate of %v bit/s, are not possible", bitsPerPacket, float64(upTo))
	}
	coefficients := h.Model.Coefficients()
	table := CostTable{rates: make([]float64, tablePoints+1), watts: make([]float64, tablePoints+1)}
	for i := range table.rates {
		part := float64(i) / tablePoints
		bits := float64(upTo) * part * part * part
		cost := h.Curves.Cost(key, curve.Rate{
			Packets: units.PacketsPerSecond(bits / bitsPerPacket), Bits: units.BitsPerSecond(bits),
		})
		table.rates[i] = bits
		table.watts[i] = float64(coefficients.PerBusyCore)*float64(cost.Cores) + float64(coefficients.PerWakeUp)*float64(cost.WakeUps)
	}
	return table, nil
}

// At returns the cost at a rate. Beyond the last rate that was sampled it goes
// straight on.
func (t CostTable) At(rate units.BitsPerSecond) units.Watts {
	above := sort.SearchFloat64s(t.rates, float64(rate))
	above = min(max(above, 1), len(t.rates)-1)
	from, to := t.rates[above-1], t.rates[above]
	part := (float64(rate) - from) / (to - from)
	return units.Watts(t.watts[above-1] + part*(t.watts[above]-t.watts[above-1]))
}
