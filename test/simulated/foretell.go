package simulated

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/learned"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/power/prior"
)

// pull is the time between two pulls of an agent's rates by the manager.
const pull = 15 * time.Second

// Foretold is how far off the manager's model of simulated nodes' power is for
// time that it did not learn from: |predicted - true| / true of the packages'
// mean power over each pull interval of each node. True is what the simulated
// physics drew, not what the simulated meter says.
type Foretold struct {
	// Median and P95 of the product's model, which knows the load.
	Median, P95 float64
	// ConstantMedian and ConstantP95 are of a model that knows no load: the node
	// draws what it drew on the mean while the other learned.
	ConstantMedian, ConstantP95 float64
	// Intervals that were foretold.
	Intervals int
}

// Foretell lets the manager learn for some time from what it pulls of each
// node's agent, and then foretell as long without learning.
func (f *Fleet) Foretell(learn time.Duration) (Foretold, error) {
	priors, err := prior.Default()
	if err != nil {
		return Foretold{}, err
	}
	models := learned.New(priors)
	var mu sync.Mutex
	var modelled, constant []float64
	err = f.each(func(n *Node) error {
		missed, without, err := n.foretell(models, learn)
		mu.Lock()
		defer mu.Unlock()
		modelled, constant = append(modelled, missed...), append(constant, without...)
		return err
	})
	if err != nil {
		return Foretold{}, err
	}
	slices.Sort(modelled)
	slices.Sort(constant)
	quantile := func(p float64, of []float64) float64 { return stat.Quantile(p, stat.Empirical, of, nil) }
	return Foretold{
		Median: quantile(0.5, modelled), P95: quantile(0.95, modelled),
		ConstantMedian: quantile(0.5, constant), ConstantP95: quantile(0.95, constant),
		Intervals: len(modelled),
	}, nil
}

// foretell returns by how much of the true power the model, and the mean of the
// time before, were off in each interval.
func (n *Node) foretell(models *learned.Models, learn time.Duration) (modelled, constant []float64, err error) {
	intervals := int(learn / pull)
	began := n.Host.Joules()
	for range intervals {
		if err := n.rounds(int(pull / time.Second)); err != nil {
			return nil, nil, err
		}
		models.Look(n.Host.Name(), n.sight())
	}
	mean := float64(n.Host.Joules()-began) / learn.Seconds()
	for range intervals {
		before, totals := n.Host.Joules(), n.Rates.Totals
		if err := n.rounds(int(pull / time.Second)); err != nil {
			return nil, nil, err
		}
		load, _, ok := power.LoadBetween(totals, n.Rates.Totals)
		estimate, known := models.Predict(n.Host.Name(), load)
		if !ok || !known {
			return nil, nil, fmt.Errorf("simulated node %s: the manager learned nothing of it", n.Host.Name())
		}
		truth := float64(n.Host.Joules()-before) / pull.Seconds()
		modelled = append(modelled, math.Abs(float64(estimate.Watts)-truth)/truth)
		constant = append(constant, math.Abs(mean-truth)/truth)
	}
	return modelled, constant, nil
}

// sight is what the manager knows of the node after a pull.
func (n *Node) sight() learned.Sight {
	return learned.Sight{
		Processor: learned.Processor{Name: n.topology.CPUModel, Cores: len(n.topology.Cores)},
		Topology:  func() (model.Topology, error) { return n.topology, nil },
		Power:     n.Rates.Power, Rates: n.Rates, Received: n.Rates.Time,
	}
}
