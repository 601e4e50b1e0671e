package simulated

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/guards"
	"github.com/joulevirt/joulevirt/internal/units"
)

// GlobalGuarded is what the manager's guard did with made-up histories of VMs, by the kind
// of VM: of all but KindHarmed and KindWorse the lever changes nothing. Kinds are cases that a guard by
// levels has trouble with, and no fleet's mix.
type GlobalGuarded struct {
	VMDays    map[string]float64
	Withdrawn map[string]int
	// Found is how long after it came on the lever was withdrawn from VMs of KindHarmed, in the
	// first hours.
	Found []time.Duration
	// Nodes is how often the lever was withdrawn from all VMs of a node whose VMs' loads go
	// up and down together, in NodeDays.
	Nodes    int
	NodeDays float64
}

// The kinds of VMs, by how long their vCPUs wait for CPUs, or their guests fail.
const (
	KindQuiet   = "quiet"   // 1 % of a CPU, in the mean
	KindNear    = "near"    // 3 %, and the level is 5 %
	KindSwings  = "swings"  // loads that come and go within minutes and hours
	KindDay     = "day"     // beyond the level by day
	KindAlways  = "always"  // always beyond it
	KindReboots = "reboots" // its guest boots six times a day for a minute, and waits 15 %
	KindMoves   = "moves"   // migrates each few hours
	KindBusy    = "busy"    // loads that come and go with those of all others of the node
	KindHarmed  = "harmed"  // 8 % more with the lever
	// KindWorse is beyond its level now and then by itself, and 8 % more with the lever.
	KindWorse = "worse"
)

func kinds() []string {
	return []string{KindQuiet, KindNear, KindSwings, KindDay, KindAlways, KindReboots, KindMoves, KindHarmed, KindWorse}
}

func hurts(kind string) bool { return kind == KindHarmed || kind == KindWorse }

// False is how often a day a lever was withdrawn from a VM that it did not hurt, of nodes that
// have all kinds.
func (g *GlobalGuarded) False() float64 {
	var days float64
	count := 0
	for kind, d := range g.VMDays {
		if kind != KindBusy && !hurts(kind) {
			days, count = days+d, count+g.Withdrawn[kind]
		}
	}
	return float64(count) / days
}

// imagined is a VM with a made-up history.
type imagined struct {
	kind     string
	pod      int
	swing    float64
	rebootAt time.Duration
}

const (
	imaginedBlock = 10 * time.Minute
	trialEnds     = 8 * time.Hour
)

func imaginedStart() time.Time { return time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC) }

// GlobalGuard plays nodes with four VMs of each kind for so many days: a trial of lever
// Affinity in blocks of ten minutes, then a hold-back of one block in twenty, and a manager
// that is replaced once a day.
func GlobalGuard(seed uint64, nodes, days int) GlobalGuarded {
	g := GlobalGuarded{VMDays: map[string]float64{}, Withdrawn: map[string]int{}}
	const each, alike = 4, 16
	for i := range nodes {
		g.node(rand.New(rand.NewPCG(seed, uint64(i))), days, each, kinds()...)
	}
	for i := range nodes {
		g.node(rand.New(rand.NewPCG(seed, 1<<32|uint64(i))), days, alike, KindBusy)
		g.NodeDays += float64(days)
	}
	return g
}

// node plays one with so many VMs of each of some kinds.
func (g *GlobalGuarded) node(random *rand.Rand, days, each int, kinds ...string) {
	clk := clocktesting.NewFakeClock(imaginedStart())
	store := guards.NewStore(clk, 2*time.Minute)
	var vms []*imagined
	for _, kind := range kinds {
		for range each {
			vms = append(vms, &imagined{kind: kind, rebootAt: time.Duration(random.Int64N(int64(4 * time.Hour)))})
			g.VMDays[kind] += float64(days)
		}
	}
	var held []model.Withdrawal
	counted := map[string]bool{}
	on := false
	var since time.Duration
	for at := time.Duration(0); at < time.Duration(days)*24*time.Hour; at += pull {
		clk.Step(pull)
		if at%(24*time.Hour) == 12*time.Hour {
			store = guards.NewStore(clk, 2*time.Minute)
		}
		if at%imaginedBlock == 0 {
			was := on
			on = random.IntN(20) > 0
			if at < trialEnds {
				on = random.IntN(2) > 0
			}
			if on && !was {
				since = at
			}
		}
		lasts := map[string]bool{}
		for i := range held {
			lasts[held[i].PodUID] = lasts[held[i].PodUID] || held[i].Lasts(clk.Now())
		}
		g.pull(random, store, clk.Now(), on, vms, lasts)
		held = store.Of("n", held)
		g.count(held, counted, at, since, vms)
	}
}

// count the withdrawals that are new.
func (g *GlobalGuarded) count(held []model.Withdrawal, counted map[string]bool, at, since time.Duration, vms []*imagined) {
	for i := range held {
		w := &held[i]
		if key := w.PodUID + w.Time.String(); !counted[key] {
			counted[key] = true
			if w.PodUID == "" && vms[0].kind == KindBusy {
				g.Nodes++
			}
			for n, vm := range vms {
				if w.PodUID == podOf(n, vm) {
					if g.Withdrawn[vm.kind]++; vm.kind == KindHarmed && at < trialEnds {
						g.Found = append(g.Found, at-since)

					}
				}
			}
		}
	}
}

func podOf(i int, vm *imagined) string { return fmt.Sprintf("%s-%d-%d", vm.kind, i, vm.pod) }

// pull lets the manager hear a round, and what the API server says of guests.
func (g *GlobalGuarded) pull(random *rand.Rand, store *guards.Store, now time.Time, on bool, vms []*imagined, lasts map[string]bool) {
	at := now.Sub(imaginedStart()) - pull
	all := units.NewCPUSet(0, 1, 2, 3)
	rates := &model.NodeRates{Node: "n", Time: now, IntervalSeconds: 1, Switches: []model.Switch{{Lever: v1alpha1.LeverAffinity, On: on}}}
	acts := map[string]bool{}
	for i, vm := range vms {
		vm.live(random, at)
		if vm.kind == KindBusy {
			vm.swing = vms[0].swing
		}
		pod := podOf(i, vm)
		acts[pod] = !lasts[pod] && !lasts[""]
		bound := on && acts[pod]
		cpus := all
		if bound {
			cpus = units.NewCPUSet(1)
		}
		wait := units.Cores(vm.steal(random, at, bound) / 100)
		rates.VMs = append(rates.VMs, model.VMRates{PodUID: pod, AllowedCPUs: all, VCPUs: []model.VCPURates{{CPUs: cpus, ThreadRates: model.ThreadRates{WaitCores: wait}}}})
	}
	store.Hear(rates, guards.Circumstances{VM: func(pod string) (guards.VM, bool) {
		const level = 0.05
		vm := guards.VM{MaxSteal: level}
		if acts[pod] {
			vm.Acts = []v1alpha1.Lever{v1alpha1.LeverAffinity}
		}
		return vm, true
	}})
	for i, vm := range vms {
		store.Guest(guards.Guest{PodUID: podOf(i, vm), Node: "n", Ready: !vm.reboots(at), Since: now})
	}
}

// live lets a VM's load go on: an hour halves what it was.
func (vm *imagined) live(random *rand.Rand, at time.Duration) {
	keeps := math.Exp2(-float64(pull) / float64(time.Hour))
	vm.swing = keeps*vm.swing + math.Sqrt(1-keeps*keeps)*random.NormFloat64()
	if vm.kind == KindMoves && random.Float64() < float64(pull)/float64(4*time.Hour) {
		vm.pod++
	}
	if vm.kind == KindReboots && at > vm.rebootAt+time.Minute {
		vm.rebootAt = at + time.Duration(random.Int64N(int64(8*time.Hour)))
	}
}

func (vm *imagined) reboots(at time.Duration) bool {
	return vm.kind == KindReboots && at >= vm.rebootAt && at <= vm.rebootAt+time.Minute
}

// steal in percent of a CPU, in one second.
func (vm *imagined) steal(random *rand.Rand, at time.Duration, bound bool) float64 {
	noise := math.Exp(0.4 * random.NormFloat64())
	switch vm.kind {
	case KindNear:
		return 3 * noise
	case KindSwings, KindBusy:
		return math.Exp(0.8*vm.swing) * 1.5 * noise
	case KindDay:
		return (3.5 - 2.5*math.Cos(2*math.Pi*at.Hours()/24)) * noise
	case KindAlways:
		return 9 * noise
	case KindReboots:
		if vm.reboots(at) {
			return 15 * noise
		}
	case KindWorse:
		wait := math.Exp(0.8*vm.swing) * 1.5 * noise
		if bound {
			wait += 8
		}
		return wait
	case KindHarmed:
		if bound {
			return 9 * noise
		}
	}
	return noise
}
