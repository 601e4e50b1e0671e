package simulated

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/blocks"
	"github.com/joulevirt/joulevirt/internal/sim"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
)

// trialHost is a simulated node under a plan whose traffic changes each minute, as that of
// its twins does.
type trialHost struct {
	*Managed
	vms   []sim.VM
	total units.BitsPerSecond
	load  *rand.Rand
	level float64
}

func newTrialHost(t *testing.T, policy model.Policy) *trialHost {
	t.Helper()
	s := StudiedAffinity(1)[0]
	h, vms, err := s.sending()
	if err != nil {
		t.Fatal(err)
	}
	m, err := Manage(h, vms, policy, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := m.Watch(settling); err != nil {
		t.Fatal(err)
	}
	return &trialHost{m, vms, s.Total, rand.New(rand.NewPCG(5, 5)), 1}
}

// pass lets time pass, with a pull and a plan each 15 s.
func (h *trialHost) pass(t *testing.T, d time.Duration, each func()) {
	t.Helper()
	for range d / time.Minute {
		h.level = max(0.6, min(1.2, h.level*math.Exp(0.03*h.load.NormFloat64())))
		for _, vm := range h.vms {
			share := h.total * units.BitsPerSecond(h.level) / units.BitsPerSecond(len(h.vms))
			if err := h.Host.SetTraffic(vm.PodUID, sim.Traffic{FromVM: share}); err != nil {
				t.Fatal(err)
			}
		}
		err := h.Steer(time.Minute, func() error {
			each()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestTrialFindsTheTruth: a trial of lever Affinity on a simulated node, switched by its
// whole agent and measured by its meter, finds what the lever saves by the simulator's
// truth: that of twins with the same traffic, of which one has the lever on and one off all
// the time.
func TestTrialFindsTheTruth(t *testing.T) {
	t.Parallel()
	const pairs, block, washOut, settle = 12, 5 * time.Minute, time.Minute, 20 * time.Minute
	nothing := EnforcePolicy()
	nothing.Levers = nil
	affinity := EnforcePolicy()
	affinity.Levers = []model.Lever{model.LeverAffinity}
	trial, on, off := newTrialHost(t, affinity), newTrialHost(t, affinity), newTrialHost(t, nothing)
	for _, h := range []*trialHost{trial, on, off} {
		h.pass(t, settle, func() {})
	}
	schedule, err := verify.Draw(verify.Timing{
		Lever: model.LeverAffinity, Seed: 3, Start: trial.Host.Now().Add(block), Block: block, WashOut: washOut,
	}, pairs)
	if err != nil {
		t.Fatal(err)
	}
	trial.Plan.Schedules = []model.Schedule{schedule}

	store := blocks.NewStore()
	var told []blocks.Block
	var outcomes []verify.Outcome
	// One block before the first, and a minute for what comes late.
	const lasts = (2*pairs+1)*block + time.Minute
	trial.pass(t, lasts, func() {
		rates := trial.board.Latest().Rates
		told = append(told, store.Look(rates.Node, blocks.Sight{
			Rates: rates, Received: rates.Time, Power: rates.Power, Schedules: trial.Plan.Schedules,
		}, trial.Host.Now())...)
	})
	for _, b := range told {
		if b.Excluded != "" || b.Source != model.SourceRAPL || b.Scope != model.ScopePlatform {
			t.Errorf("simulated: block %d by %q of %q is excluded for %q", b.Block, b.Source, b.Scope, b.Excluded)
		}
		outcomes = append(outcomes, b.Outcome)
	}
	if len(told) != 2*pairs || told[0].Before.Seconds == 0 {
		t.Fatalf("simulated: %d blocks are told of, want %d, the first with what was before: %+v", len(told), 2*pairs, told[0].Before)
	}
	var truth float64
	with, without := on.drawn(t, lasts), off.drawn(t, lasts)
	for number := range 2 * pairs {
		// The trial has one block before its first.
		end := int(time.Duration(number+2) * block / pull)
		begin := end - int((block-washOut)/pull)
		truth += math.Log((with[end]-with[begin])/(without[end]-without[begin])) / (2 * pairs)
	}

	plan := verify.DefaultPlan(block, 1)
	plan.Pairs, plan.Every = pairs, pairs
	got := verify.Judge(&verify.Trial{Plan: plan, Units: 1, Over: pairs, Outcomes: outcomes})
	t.Logf("simulated: %s; effect %.4f ± %.4f, in truth %.4f", got.Message, got.Effect.Log, got.Effect.StdErr, truth)
	if got.Decision != verify.Adopted || got.Effect.StdErr > 0.01 {
		t.Errorf("simulated: %s (%+v)", got.Message, got.Effect)
	}
	if math.Abs(got.Effect.Log-truth) > 2*got.Effect.StdErr {
		t.Errorf("simulated: effect %.4f ± %.4f, in truth %.4f", got.Effect.Log, got.Effect.StdErr, truth)
	}
}

// drawn is what the machine has truly drawn, in joules, at the start and at each pull in some
// time.
func (h *trialHost) drawn(t *testing.T, d time.Duration) []float64 {
	t.Helper()
	drawn := []float64{float64(h.Host.PlatformJoules())}
	h.pass(t, d, func() { drawn = append(drawn, float64(h.Host.PlatformJoules())) })
	return drawn
}
