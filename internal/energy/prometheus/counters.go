package prometheus

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/joulevirt/joulevirt/internal/energy"
	power "github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// sameScrape is how far apart samples of one scrape may be. The server gives
// them one time; only what passes them on may differ a little.
const sameScrape = time.Second

// part is what of a node a counter covers.
type part int

const (
	partNone part = iota
	partPlatform
	partPackage
	partDRAM
	// partModelled is no meter's: the exporter computes it.
	partModelled
)

// place is where a series belongs within its node.
type place struct {
	part part
	// unit is one of the counters that add up to the part: a socket.
	unit string
	// mode is a share of a unit that is counted apart.
	mode string
}

// kind tells the families of counters apart.
type kind interface {
	// selector picks the series.
	selector() string
	// place says where a series belongs.
	place(labels model.Metric) place
}

// kepler is the series of Kepler 0.10 and newer. Their zones overlap: psys
// holds package, package holds core and uncore. Several sockets come as one
// zone, or as one a path.
type kepler struct{}

func (kepler) selector() string { return `kepler_node_cpu_joules_total{zone=~"psys|package|dram"}` }

func (kepler) place(labels model.Metric) place {
	parts := map[model.LabelValue]part{"psys": partPlatform, "package": partPackage, "dram": partDRAM}
	return place{part: parts[labels["zone"]], unit: string(labels["path"])}
}

// legacy is the series of Kepler 0.9 and older: a name a zone, a series a
// socket and mode.
type legacy struct{}

const (
	legacyPrefix = "kepler_node_"
	legacySuffix = "_joules_total"
)

func (legacy) selector() string {
	return `{__name__=~"` + legacyPrefix + `(platform|package|dram)` + legacySuffix + `"}`
}

func (legacy) place(labels model.Metric) place {
	parts := map[string]part{"platform": partPlatform, "package": partPackage, "dram": partDRAM}
	name := strings.TrimSuffix(strings.TrimPrefix(string(labels[model.MetricNameLabel]), legacyPrefix), legacySuffix)
	p := place{part: parts[name], unit: string(labels["package"]), mode: string(labels["mode"])}
	switch {
	case modelled(labels):
		p.part = partModelled
	case p.part == partPlatform && strings.HasPrefix(string(labels["source"]), "rapl"):
		// Without a meter of the platform Kepler shows a remainder under the
		// name of the packages' meter.
		p.part = partNone
	}
	return p
}

// modelled tells whether Kepler 0.9 computed a figure.
func modelled(labels model.Metric) bool {
	return labels["source"] == "trained_power_model" || labels["source"] == "estimator"
}

// counters is a family of energy counters.
type counters struct {
	kind     kind
	window   time.Duration
	interval time.Duration
}

func (c counters) read(ctx context.Context, ask asker, nodes *index) (found, error) {
	matrix, err := askSeries(ctx, ask, c.kind.selector(), c.window)
	if err != nil {
		return found{}, err
	}
	return c.judge(matrix, nodes), nil
}

// meters is a node's counters.
type meters map[place][]series

// judge turns series into the power of nodes.
func (c counters) judge(matrix model.Matrix, nodes *index) found {
	return judgeBy(matrix, nodes, c.kind.place, func(m map[place][]series) (nodePower, *energy.Refusal) {
		return meters(m).read(c.interval)
	})
}

// read chooses the counters that tell a node's power.
func (m meters) read(interval time.Duration) (nodePower, *energy.Refusal) {
	platform, notPlatform := m.sum(partPlatform, interval)
	packages, notPackages := m.sum(partPackage, interval)
	// A machine draws no less than its packages: where it seems to, nobody taught
	// the firmware to measure it.
	credible := notPackages != nil || platform.Watts >= packages.Watts
	switch {
	case notPlatform != nil && !absent(notPlatform):
		return nodePower{}, notPlatform
	case notPlatform == nil && credible:
		platform.Scope = power.ScopePlatform
		return platform, nil
	case notPackages != nil:
		return nodePower{}, notPackages
	}
	packages.Scope = power.ScopePackage
	// What is wrong with the memory's counters does not concern the packages'.
	if dram, refusal := m.sum(partDRAM, interval); refusal == nil {
		packages.DRAMWatts = &dram.Watts
	}
	return packages, nil
}

// absent tells whether a part has no meter: a counter that stands still is one
// that nothing is wired to.
func absent(refusal *energy.Refusal) bool {
	return refusal.Reason == energy.ReasonNoSeries || refusal.Reason == energy.ReasonNoCounters || refusal.Reason == energy.ReasonFrozen
}

// sum adds up the units of a part. They must be of the same scrape: a socket
// that is missing would halve the power.
func (m meters) sum(wanted part, interval time.Duration) (nodePower, *energy.Refusal) {
	sums := map[string]mean{}
	for _, place := range m.places(wanted) {
		one, refusal := newest(m[place], interval)
		if refusal != nil {
			return nodePower{}, refusal
		}
		if sum, ok := sums[place.unit]; ok {
			if !together(sum, one) {
				return nodePower{}, m.apart(wanted)
			}
			one = plus(one, sum)
		}
		sums[place.unit] = one
	}
	if len(sums) == 0 {
		return nodePower{}, m.missing()
	}
	return m.add(wanted, sums, interval)
}

// add adds up in a fixed order: the same samples give the same watts, to the
// last bit, and the same refusal.
func (m meters) add(wanted part, sums map[string]mean, interval time.Duration) (nodePower, *energy.Refusal) {
	var watts units.Watts
	var whole mean
	for _, unit := range slices.Sorted(maps.Keys(sums)) {
		sum := sums[unit]
		switch {
		case sum.joules == 0 && sum.to.Sub(sum.from) < interval:
			return nodePower{}, energy.Refuse(energy.ReasonAwaiting, "%s did not count between its last samples: wait for the next", m.name(wanted, unit))
		case sum.joules == 0:
			return nodePower{}, energy.Refuse(energy.ReasonFrozen, "%s stands still for %s and longer, while it is scraped: look at the exporter", m.name(wanted, unit), interval)
		case !whole.to.IsZero() && !together(whole, sum):
			return nodePower{}, m.apart(wanted)
		}
		if whole.to.IsZero() || sum.to.Before(whole.to) {
			whole = sum
		}
		watts += sum.watts()
	}
	return nodePower{
		Source:          power.SourcePrometheus,
		Watts:           watts,
		Time:            whole.to,
		IntervalSeconds: whole.to.Sub(whole.from).Seconds(),
	}, nil
}

// places returns where a part's series are, in a fixed order.
func (m meters) places(wanted part) []place {
	var all []place
	for place := range m {
		if place.part == wanted {
			all = append(all, place)
		}
	}
	slices.SortFunc(all, func(a, b place) int {
		return strings.Compare(a.unit+"\x00"+a.mode, b.unit+"\x00"+b.mode)
	})
	return all
}

// newest returns the mean of the series in force, or of the one before as long
// as it is too young.
func newest(all []series, interval time.Duration) (mean, *energy.Refusal) {
	ordered, refusal := successor(all)
	if refusal != nil {
		return mean{}, refusal
	}
	for _, s := range slices.Backward(ordered) {
		var one mean
		if one, refusal = meanOf(s, interval); refusal == nil || refusal.Reason != energy.ReasonAwaiting {
			return one, refusal
		}
	}
	return mean{}, refusal
}

// plus adds the power of another share of a unit. Shares may be counted over
// different times, when one of them began later.
func plus(one, other mean) mean {
	if one.from.Equal(other.from) {
		one.joules += other.joules
	} else {
		one.joules += units.Joules(float64(other.watts()) * one.to.Sub(one.from).Seconds())
	}
	return one
}

func together(a, b mean) bool { return a.to.Sub(b.to).Abs() <= sameScrape }

// name says which counter is meant, by an example of its series.
func (m meters) name(wanted part, unit string) string {
	for _, place := range m.places(wanted) {
		if place.unit == unit {
			return describe(m[place][0].metric)
		}
	}
	return fmt.Sprintf("counter %q", unit)
}

func (m meters) apart(wanted part) *energy.Refusal {
	first := m.places(wanted)[0]
	return energy.Refuse(energy.ReasonAwaiting, "the node's series beside %s were not scraped together with it: the exporter changed, or lost a socket; wait, and look at it if this stays",
		describe(m[first][0].metric))
}

func (m meters) missing() *energy.Refusal {
	if modelled := m.places(partModelled); len(modelled) > 0 {
		return energy.Refuse(energy.ReasonNoCounters, "%s is computed by the exporter, not measured: the node has no meter that it can read",
			describe(m[modelled[0]][0].metric))
	}
	return energy.Refuse(energy.ReasonNoSeries, "no series of the node's packages, only of other parts of it: let the exporter show zone package")
}
