package tuning

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/buffering"
	"github.com/joulevirt/joulevirt/internal/units"
)

// demand of a VM at a time, as a share of its mean.
type demand func(at time.Duration) float64

// swing goes up and down by a share.
func swing(by float64, period, phase time.Duration) demand {
	return func(at time.Duration) float64 {
		return 1 + by*math.Sin(2*math.Pi*(at+phase).Seconds()/period.Seconds())
	}
}

// crowd is VMs of one profile whose packets are held as the planner says. Each demands
// 30,000 packets/s in the mean and has of that what a window keeps.
type crowd struct {
	*heardStore
	r       *rand.Rand
	demands []demand
	keeps   func(window time.Duration) float64

	// block is the length of a trial's blocks, of each two of which the lever is off in one
	// that is drawn. 0: no trial.
	block   time.Duration
	current []model.Buffering
	// rounds, and those in which all VMs of the profile went without some window.
	rounds, barred int
	// had is the throughput of each VM in its last ten minutes or so, as a share of what it
	// demanded.
	had []float64
}

func newCrowd(seed uint64, keeps func(time.Duration) float64, demands ...demand) *crowd {
	return &crowd{
		heardStore: newHeard(), r: rand.New(rand.NewPCG(seed, 2)), demands: demands, keeps: keeps,
		current: make([]model.Buffering, len(demands)), had: slices.Repeat([]float64{1}, len(demands)),
	}
}

func (c *crowd) run(during time.Duration) {
	for end := c.rounds + int(during/(15*time.Second)); c.rounds < end; c.rounds++ {
		c.clock.SetTime(c.clock.Now().Add(15 * time.Second))
		for i := range c.demands {
			c.round(i)
		}
		if len(c.Of("nobody's", profile()).Hurts) > 0 {
			c.barred++
		}
	}
}

func (c *crowd) round(i int) {
	pod, window := fmt.Sprintf("pod-%d", i), c.current[i].Window
	if c.inOffBlock() {
		window = 0
	}
	share := c.keeps(window)
	const noise, pace = 0.1, 1.0 / 40
	packets := 30_000 * c.demands[i](time.Duration(c.rounds)*15*time.Second) * share * max(0.1, 1+noise*c.r.NormFloat64())
	c.had[i] += (share - c.had[i]) * pace
	rates := ratesOf(pod, window, func(v *model.VMRates) {
		wakeUps := packets * bunched(time.Second)(window, packets)
		v.Taps[0].ToVM = model.TrafficRates{PacketsPerSecond: units.PacketsPerSecond(packets), BitsPerSecond: units.BitsPerSecond(4000 * packets)}
		v.Taps[0].FromVM = model.TrafficRates{}
		v.Vhost = model.ThreadRates{RunCores: units.Cores(wakeUps*5e-6 + packets*2e-6), SwitchesPerSecond: units.PerSecond(wakeUps)}
		if packets < 10_000 {
			v.Buffering.ActiveShare = 0
		}
	})
	vm := model.VM{
		Namespace: "ns", Profile: "pr", PodUID: pod, TrafficClass: model.TrafficThroughput,
		LatencyBudget: 2 * time.Millisecond, OnPackets: 10_000, DefendFloods: true,
	}
	if !c.Add(rates, every()).Plan && c.rounds%60 != 0 {
		return
	}
	vm.Tuning = c.Of(pod, profile())
	c.current[i] = buffering.Choose(vm, &rates.VMs[0], c.current[i], c.clock.Now()).Buffering
}

func (c *crowd) inOffBlock() bool {
	if c.block == 0 {
		return false
	}
	block := uint64(time.Duration(c.rounds) * 15 * time.Second / c.block)
	return rand.New(rand.NewPCG(uint64(c.block), block/2)).Uint64()%2 == block%2
}

// low tells whether a VM had less in its last rounds than the default allows.
func (c *crowd) low(i int) bool { return c.had[i] < 0.88 }

// Demand that swings is hardly ever taken for a window that hurts: a profile's VMs go
// without a window for nothing in 2 % of the crowds at most.
func TestSwingsAreNotBlamed(t *testing.T) {
	const hours, phases, most = 12, 8, 0.02
	harmless := func(time.Duration) float64 { return 1 }
	barred, crowds := 0, 0
	for _, by := range []float64{0.3, 0.6, 0.9} {
		for _, period := range []time.Duration{10 * time.Minute, 20 * time.Minute, 30 * time.Minute, time.Hour} {
			for phase := range phases {
				shift := time.Duration(float64(period) * float64(phase) / phases)
				c := newCrowd(uint64(phase), harmless, swing(by, period, shift), swing(by, period*9/10, 2*shift), swing(by/2, period*3/2, 0))
				c.run(hours * time.Hour)
				crowds++
				if c.barred > 0 {
					barred++
					t.Logf("simulated swings by %.1f in %v: without a window for %d of %d rounds", by, period, c.barred, c.rounds)
				}
			}
		}
	}
	if t.Logf("simulated: %d of %d crowds go without a window once", barred, crowds); float64(barred) > most*float64(crowds) {
		t.Errorf("simulated: swings of demand were blamed on windows in %d of %d crowds", barred, crowds)
	}
}

// Nor in trials, where a window comes and goes by blocks: 5 % of the crowds at most. Windows
// that do cost throughput are found there too, for a profile where blocks leave the time for
// it.
func TestBlameInTrials(t *testing.T) {
	const hours, phases, most = 12, 4, 0.05
	harmless := func(time.Duration) float64 { return 1 }
	hurting := func(w time.Duration) float64 { return 1 - 0.5*float64(w/(500*us)) }
	barred, crowds := 0, 0
	for _, block := range []time.Duration{10 * time.Minute, 15 * time.Minute, 30 * time.Minute} {
		for _, by := range []float64{0.3, 0.6, 0.9} {
			for _, period := range []time.Duration{20 * time.Minute, time.Hour, 24 * time.Hour} {
				for phase := range phases {
					shift := time.Duration(float64(period) * float64(phase) / phases)
					c := newCrowd(uint64(phase), harmless, swing(by, period, shift), swing(by, period*9/10, 2*shift), swing(by/2, period*3/2, 0))
					c.block = block
					c.run(hours * time.Hour)
					if crowds++; c.barred > 0 {
						barred++
						t.Logf("simulated blocks of %v, swings by %.1f in %v: without a window for %d of %d rounds", block, by, period, c.barred, c.rounds)
					}
				}
			}
		}
		steady := newCrowd(uint64(block), hurting, swing(0, time.Hour, 0), swing(0, time.Hour, 0))
		steady.block = block
		if steady.run(hours * time.Hour); steady.barred == 0 && block > 10*time.Minute {
			t.Errorf("simulated blocks of %v: a window that halves throughput is not blamed", block)
		}
	}
	if t.Logf("simulated trials: %d of %d crowds go without a window once", barred, crowds); float64(barred) > most*float64(crowds) {
		t.Errorf("simulated trials: swings of demand were blamed on windows in %d of %d crowds", barred, crowds)
	}
}

// What windows cost does not add up: VMs whose requests wait for one another, so that each
// window costs throughput, keep about nine tenths of that without, and lose more only for
// as long as it takes to see that.
func TestLossesDoNotAddUp(t *testing.T) {
	const seeds, hours = 8, 12
	const mostLow, mostHours = 0.15, 3.0
	roundTrips := []time.Duration{250 * us, 500 * us, time.Millisecond, 2 * time.Millisecond, 4 * time.Millisecond, 8 * time.Millisecond}
	steady := func(time.Duration) float64 { return 1 }
	end := 0
	for _, roundTrip := range roundTrips {
		lowHours := 0.0
		for seed := range uint64(seeds) {
			c := newCrowd(seed, func(w time.Duration) float64 { return float64(roundTrip) / float64(roundTrip+w) }, steady, steady)
			const often = 2
			for range often * hours {
				c.run(time.Hour / often)
				for i := range c.had {
					if c.low(i) {
						lowHours += 1.0 / (often * seeds * float64(len(c.had)))
					}
				}
			}
			if c.low(0) || c.low(1) {
				end++
			}
		}
		if t.Logf("simulated requests of %v: VMs lose too much for %.1f of %d hours", roundTrip, lowHours, hours); lowHours > mostHours {
			t.Errorf("simulated requests of %v: VMs lose too much for %.1f of %d hours, want %.0f at most", roundTrip, lowHours, hours, mostHours)
		}
	}
	if n := seeds * len(roundTrips); float64(end) > mostLow*float64(n) {
		t.Errorf("simulated: of %d crowds %d lose too much in the end", n, end)
	}
}
