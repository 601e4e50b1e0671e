package placement

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
)

// simulatedDay is a fleet whose VMs do most of their work at their own time of the day.
type simulatedDay struct {
	nodes int
	// demand is each VM's CPU use in each minute.
	demand [][]float64
	at     []int
}

const (
	minutesOfDay = 24 * 60
	days         = 3
	minutes      = days * minutesOfDay
	measured     = 15 // minutes
	takes        = 30 * time.Second
)

func newDay(seed uint64, nodes, vmsPerNode int) *simulatedDay {
	r := rand.New(rand.NewPCG(seed, 3))
	d := &simulatedDay{nodes: nodes}
	for v := range nodes * vmsPerNode {
		size, peak, noise := 0.3*math.Exp(0.8*r.NormFloat64()), 14+2*r.NormFloat64(), 0.0
		if r.IntN(5) == 0 {
			peak = 2 // it works at night
		}
		demand := make([]float64, minutes)
		for m := range demand {
			noise = 0.9*noise + 0.1*r.NormFloat64()
			wave := 0.5 + 0.5*math.Cos(2*math.Pi*(float64(m)/60-peak)/24)
			demand[m] = min(4, size*(0.1+1.9*wave*wave)*math.Exp(noise))
		}
		d.demand = append(d.demand, demand)
		d.at = append(d.at, v%nodes)
	}
	return d
}

// problem is what is measured over some minutes.
func (d *simulatedDay) problem(from, to int) *Problem {
	p := fleet(d.nodes)
	use := make([][]float64, d.nodes)
	for node := range use {
		use[node] = make([]float64, to-from)
	}
	for v, node := range d.at {
		window := slices.Clone(d.demand[v][from:to])
		for i, x := range window {
			use[node][i] += x
		}
		p.addVM(node, units.Cores(mean(window)), p95(window), func(vm *VM) {
			vm.Requests = Requests{CPU: 0.1, Memory: 3 * gibi}
			vm.Cost.Time = takes
		})
	}
	for node := range p.Nodes {
		p.Nodes[node].P95 = p95(use[node])
	}
	return p
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

func p95(x []float64) units.Cores {
	sorted := slices.Sorted(slices.Values(x))
	return units.Cores(sorted[int(0.95*float64(len(sorted)-1))])
}

// run plays all days and returns of the last the joules, the part of the VMs' time that their node
// lacked CPUs, and the moves per VM. decide returns the moves of a minute.
// Hosts may be nil: all are on.
func (d simulatedDay) run(decide func(minute int, at []int) []Move, hosts *poweredHosts) (joules, lacking, moves float64) {
	d.at = slices.Clone(d.at)
	for minute := measured; minute < minutes; minute++ {
		if minute == minutes-minutesOfDay {
			joules, lacking, moves = 0, 0, 0
		}
		for _, m := range decide(minute, d.at) {
			d.at[m.VM] = m.To
			moves++
			joules += 2 * 4 * m.Cost.Time.Seconds()
		}
		busy, vms := make([]float64, d.nodes), make([]float64, d.nodes)
		for v, node := range d.at {
			busy[node] += d.demand[v][minute]
			vms[node]++
		}
		for node, b := range busy {
			joules += 60 * float64(hosts.draw(node, b))
			if b > float64(newNode("").CPUs) {
				lacking += vms[node]
			}
		}
	}
	return joules, lacking / float64(len(d.at)*minutesOfDay), moves / float64(len(d.at))
}

// fleets are simulated: what one saves changes by several percent when the last digit of a sum does.
const fleets = 6

// spread returns the mean of what fleets have, and its standard error.
func spread(x []float64) (center, standardError float64) {
	center = mean(x)
	squares := 0.0
	for _, v := range x {
		squares += (v - center) * (v - center)
	}
	n := float64(len(x))
	return center, math.Sqrt(squares / (n - 1) / n)
}

// BenchmarkDay plays a day of fleets with placement, without, and with an oracle that knows each
// quarter of an hour in advance and moves any number of VMs. All hosts stay on: what is saved is
// what awake cores draw. Figures are means, but for service, which is of the worst fleet.
func BenchmarkDay(b *testing.B) {
	for b.Loop() {
		var oracle, part, moved []float64
		broken := 0.0
		for seed := range uint64(fleets) {
			d := newDay(seed+1, 24, 20)
			still, _, _ := d.run(func(int, []int) []Move { return nil }, nil)
			best, _, _ := d.run(d.foresee, nil)
			joules, lacking, moves := d.run(d.place(DefaultPace(), nil, freedom{}, 1), nil)
			oracle, part, moved = append(oracle, 100*(still-best)/still), append(part, 100*(still-joules)/(still-best)), append(moved, moves)
			broken = max(broken, 100*lacking)
		}
		_, standardError := spread(part)
		b.Logf("by fleet, the oracle saves %.2f %%, of which %.1f %% are saved (standard error %.1f) with %.2f moves per VM", oracle, part, standardError, moved)
		b.Logf("figure placement_oracle_saving_pct %.2f percent (simulated)", mean(oracle))
		b.Logf("figure placement_saving_vs_oracle_pct %.1f percent (simulated)", mean(part))
		b.Logf("figure placement_service_broken_pct %.3f percent (simulated)", broken)
		b.Logf("figure placement_migrations_per_vm_day %.2f 1/day (simulated)", mean(moved))
	}
}

// foresee returns the moves of the oracle.
func (d *simulatedDay) foresee(minute int, at []int) []Move {
	if minute%measured != 0 || minute+measured > minutes {
		return nil
	}
	known := *d
	known.at = at
	p := known.problem(minute, minute+measured)
	p.Limits.LeastWatts = 0.01
	return Decide(*p).Moves
}

// freedom is what a planner need not keep, which the oracle need not either.
type freedom struct {
	// budgets: any number of VMs moves at once. standing: moves need not have been proposed before.
	// rests: VMs move again at once. ahead: only now counts, not the hours ahead. least: any watt is worth a
	// move. foresight: the next quarter of an hour is known, instead of the last.
	budgets, standing, rests, ahead, least, foresight bool
}

// place returns what returns the moves that the product makes. Hosts may be nil: all stay on. It
// decides each minute, or in steps of more.
func (d *simulatedDay) place(pace Pace, hosts *poweredHosts, free freedom, step int) func(minute int, at []int) []Move {
	var memory Memory
	history := make([]Day, len(d.demand))
	if free.standing {
		pace.Stands = 0
	}
	return func(minute int, placed []int) (made []Move) {
		known := *d
		known.at = placed
		now := at(minute)
		for v := range history {
			history[v].Add(now, units.Cores(d.demand[v][minute-1]))
		}
		if minute%step != 0 {
			return nil
		}
		problem := known.problem(minute-measured, minute)
		if free.foresight {
			problem = known.problem(minute, min(minute+measured, minutes))
		}
		if hosts != nil {
			hosts.step(minute, problem)
			hosts.close(problem)
		}
		p := *problem
		if !free.rests {
			p = memory.Restrain(p, now)
		}
		for v := range p.VMs {
			if !free.ahead {
				p.VMs[v].Ahead = history[v].Ahead(now, p.VMs[v].Mean)
			}
		}
		if free.least {
			p.Limits.LeastWatts = 0.01
		}
		result := Decide(p)
		made, memory = memory.Next(p, result, nil, pace, now)
		if free.budgets {
			for _, m := range result.Moves {
				stood := m.Reason != ReasonSavesNow || now.Sub(memory.Proposed[p.Nodes[m.From].Name]) >= pace.Stands
				if stood && !slices.ContainsFunc(made, func(other Move) bool { return other.VM == m.VM }) {
					made = append(made, m)
					vm := p.VMs[m.VM].key()
					memory.Moved[vm] = append(memory.Moved[vm], now)
				}
			}
		}
		return made
	}
}

// BenchmarkDayParts says where the rest of what the oracle saves goes: the planner gets one of the
// oracle's freedoms after the other, and each of them alone. Figures are means of fleets with
// their standard errors. It decides each five minutes, which takes less time.
func BenchmarkDayParts(b *testing.B) {
	const fleets = 4
	order := []struct {
		name string
		free func(*freedom) *bool
	}{
		{"any number of moves", func(f *freedom) *bool { return &f.budgets }},
		{"no standing", func(f *freedom) *bool { return &f.standing }},
		{"no rests", func(f *freedom) *bool { return &f.rests }},
		{"only now counts", func(f *freedom) *bool { return &f.ahead }},
		{"any watt", func(f *freedom) *bool { return &f.least }},
		{"the next quarter of an hour", func(f *freedom) *bool { return &f.foresight }},
	}
	type variant struct {
		name string
		free freedom
	}
	variants := []variant{{"as shipped", freedom{}}}
	var sum freedom
	for i, o := range order {
		var alone freedom
		*o.free(&alone), *o.free(&sum) = true, true
		if variants = append(variants, variant{"alone: " + o.name, alone}); i > 0 {
			variants = append(variants, variant{"and: " + o.name, sum})
		}
	}
	var days []*simulatedDay
	var still, best []float64
	for seed := range uint64(fleets) {
		d := newDay(seed+1, 24, 20)
		without, _, _ := d.run(func(int, []int) []Move { return nil }, nil)
		foreseen, _, moves := d.run(d.foresee, nil)
		days, still, best = append(days, d), append(still, without), append(best, foreseen)
		b.Logf("the oracle makes %.2f moves a VM", moves)
	}
	for _, v := range variants {
		b.Run(v.name, func(b *testing.B) {
			for b.Loop() {
				var parts, moved []float64
				for i, d := range days {
					joules, _, moves := d.run(d.place(DefaultPace(), nil, v.free, 5), nil)
					parts, moved = append(parts, 100*(still[i]-joules)/(still[i]-best[i])), append(moved, moves)
				}
				center, standardError := spread(parts)
				b.Logf("%.1f ± %.1f %%, %.2f moves a VM", center, standardError, mean(moved))
			}
		})
	}
}
