package buffering

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

func fastTap(perSecond units.PacketsPerSecond) *model.VMRates {
	return &model.VMRates{Taps: []model.TapRates{
		{ToVM: model.TrafficRates{PacketsPerSecond: perSecond}, FromVM: model.TrafficRates{PacketsPerSecond: perSecond / 2}}, {},
	}}
}

func closeWatts() cmp.Option {
	return cmp.Comparer(func(x, y units.Watts) bool { return math.Abs(float64(x-y)) < 1e-9 })
}

func TestPotential(t *testing.T) {
	costs := model.PowerCosts{PerBusyCore: 10, PerWakeUp: 1e-5}
	// A packet costs a wake-up, 10 uJ, and 10 us of CPU time, 100 uJ.
	without, first := trial(0, 1), with(trial(250*us, 0.5), func(t *model.Trial) { t.CoresPerPacket = 5e-6 })
	longer := with(trial(500*us, 0.4), func(t *model.Trial) { t.CoresPerPacket = 4e-6 })
	for name, tc := range map[string]struct {
		trials []model.Trial
		rates  *model.VMRates
		change func(*model.VM)
		want   Prediction
	}{
		"nothing seen, and slow":    {nil, fastTap(9_999), nil, Prediction{Known: true}},
		"nothing seen":              {nil, fastTap(20_000), nil, Prediction{}},
		"no window was tried":       {[]model.Trial{without}, fastTap(20_000), nil, Prediction{Window: 250 * us, Saved: 30_000 * 110e-6 * 0.28, Known: true}},
		"packets come slowly now":   {[]model.Trial{without}, fastTap(9_999), nil, Prediction{Window: 250 * us, Known: true}},
		"the first was tried":       {[]model.Trial{without, first}, fastTap(20_000), func(v *model.VM) { v.LatencyBudget = 500 * us }, Prediction{Window: 250 * us, Saved: 30_000 * 55e-6, Measured: true, Known: true}},
		"a longer one would follow": {[]model.Trial{without, first}, fastTap(20_000), nil, Prediction{Window: 500 * us, Saved: 30_000 * 110e-6 * 0.28, Known: true}},
		"and saved more":            {[]model.Trial{without, first, longer}, fastTap(20_000), func(v *model.VM) { v.LatencyBudget = time.Millisecond }, Prediction{Window: 500 * us, Saved: 30_000 * 66e-6, Measured: true, Known: true}},
		"the longest is not tried":  {[]model.Trial{without, first, longer}, fastTap(20_000), nil, Prediction{Window: 1000 * us, Saved: 30_000 * 110e-6 * 0.49, Known: true}},
		"it saves too little":       {[]model.Trial{without, trial(250*us, 0.95)}, fastTap(20_000), nil, Prediction{Known: true}},
		"no budget":                 {[]model.Trial{without, first}, fastTap(20_000), func(v *model.VM) { v.LatencyBudget = 0 }, Prediction{Known: true}},
		"no tap":                    {[]model.Trial{without, first}, &model.VMRates{}, nil, Prediction{Known: true}},
		"it hurt":                   {[]model.Trial{without, first}, fastTap(20_000), func(v *model.VM) { v.Tuning.Hurts = []model.Hurt{hurt(125 * us)} }, Prediction{Known: true}},
	} {
		vm := newVM()
		vm.Tuning.Trials = tc.trials
		if tc.change != nil {
			tc.change(&vm)
		}
		if diff := cmp.Diff(tc.want, Potential(vm, tc.rates, costs, now()), closeWatts()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A manager that starts knows nothing but that packets are held.
func TestPotentialOfWhatIsInForce(t *testing.T) {
	costs := model.PowerCosts{PerBusyCore: 10, PerWakeUp: 1e-5}
	rates := fastTap(20_000)
	rates.Vhost = model.ThreadRates{RunCores: 0.4, SwitchesPerSecond: 41_200}
	rates.Buffering = &model.BufferingRates{WindowMicroseconds: 500, ActiveShare: 1}
	want := Prediction{Window: 500 * us, Saved: 4.412/0.72 - 4.412, Known: true}
	if diff := cmp.Diff(want, Potential(newVM(), rates, costs, now()), closeWatts()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The more packets there are, and the more they cost, the more there is to be saved.
func TestPotentialRises(t *testing.T) {
	vm := newVM()
	saved := func(perSecond units.PacketsPerSecond, wakeUps float64, costs model.PowerCosts) units.Watts {
		vm.Tuning.Trials = []model.Trial{trial(0, wakeUps)}
		return Potential(vm, fastTap(perSecond), costs, now()).Saved
	}
	costs := model.PowerCosts{PerBusyCore: 10, PerWakeUp: 1e-5}
	is := saved(20_000, 1, costs)
	for name, more := range map[string]units.Watts{
		"packets": saved(21_000, 1, costs), "wake-ups": saved(20_000, 1.1, costs),
		"a core": saved(20_000, 1, model.PowerCosts{PerBusyCore: 11, PerWakeUp: 1e-5}),
		"each":   saved(20_000, 1, model.PowerCosts{PerBusyCore: 10, PerWakeUp: 2e-5}),
	} {
		if !(more > is) {
			t.Errorf("more for %s: %v W, and %v W without", name, more, is)
		}
	}
}
