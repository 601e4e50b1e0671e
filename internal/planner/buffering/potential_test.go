package buffering

import (
	"math"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

func fastTap(perSecond units.PacketsPerSecond) *model.VMRates {
	return &model.VMRates{Taps: []model.TapRates{
		{ToVM: model.TrafficRates{PacketsPerSecond: perSecond}, FromVM: model.TrafficRates{PacketsPerSecond: perSecond / 2}}, {},
	}}
}

func TestPotential(t *testing.T) {
	costs := model.PowerCosts{PerBusyCore: 10, PerWakeUp: 1e-5}
	// A packet costs a wake-up, 10 uJ, and 10 us of CPU time, 100 uJ.
	without, first := trial(0, 1), with(trial(250*us, 0.5), func(t *model.Trial) { t.CoresPerPacket = 5e-6 })
	longer := with(trial(500*us, 0.4), func(t *model.Trial) { t.CoresPerPacket = 4e-6 })
	for name, tc := range map[string]struct {
		trials   []model.Trial
		rates    *model.VMRates
		change   func(*model.VM)
		window   time.Duration
		saved    units.Watts
		measured bool
	}{
		"nothing seen":              {nil, fastTap(20_000), nil, 0, 0, false},
		"no window was tried":       {[]model.Trial{without}, fastTap(20_000), nil, 250 * us, 30_000 * 110e-6 * 0.188, false},
		"packets come slowly now":   {[]model.Trial{without}, fastTap(9_999), nil, 250 * us, 0, false},
		"the first was tried":       {[]model.Trial{without, first}, fastTap(20_000), func(v *model.VM) { v.LatencyBudget = 500 * us }, 250 * us, 30_000 * 55e-6, true},
		"a longer one would follow": {[]model.Trial{without, first}, fastTap(20_000), nil, 500 * us, 30_000 * 110e-6 * 0.188, false},
		"and saved more":            {[]model.Trial{without, first, longer}, fastTap(20_000), func(v *model.VM) { v.LatencyBudget = time.Millisecond }, 500 * us, 30_000 * 66e-6, true},
		"the longest is not tried":  {[]model.Trial{without, first, longer}, fastTap(20_000), nil, 1000 * us, 30_000 * 110e-6 * 0.323, false},
		"it saves too little":       {[]model.Trial{without, trial(250*us, 0.95)}, fastTap(20_000), nil, 0, 0, false},
		"no budget":                 {[]model.Trial{without, first}, fastTap(20_000), func(v *model.VM) { v.LatencyBudget = 0 }, 0, 0, false},
		"no tap":                    {[]model.Trial{without, first}, &model.VMRates{}, nil, 0, 0, false},
		"it hurt":                   {[]model.Trial{without, first}, fastTap(20_000), func(v *model.VM) { v.Tuning.Hurts = []model.Hurt{hurt(125 * us)} }, 0, 0, false},
	} {
		vm := newVM()
		vm.Tuning.Trials = tc.trials
		if tc.change != nil {
			tc.change(&vm)
		}
		window, saved, measured := Potential(vm, tc.rates, costs, now())
		if window != tc.window || math.Abs(float64(saved-tc.saved)) > 1e-9 || measured != tc.measured {
			t.Errorf("%s: %v saves %v W, measured %t, want %v, %v W, %t", name, window, saved, measured, tc.window, tc.saved, tc.measured)
		}
	}
}

// A manager that starts knows nothing but that packets are held.
func TestPotentialOfWhatIsInForce(t *testing.T) {
	costs := model.PowerCosts{PerBusyCore: 10, PerWakeUp: 1e-5}
	rates := fastTap(20_000)
	rates.Vhost = model.ThreadRates{RunCores: 0.4, SwitchesPerSecond: 41_200}
	rates.Buffering = &model.BufferingRates{WindowMicroseconds: 500, ActiveShare: 1}
	window, saved, measured := Potential(newVM(), rates, costs, now())
	if want := 4.412/0.812 - 4.412; window != 500*us || math.Abs(float64(saved)-want) > 1e-9 || measured {
		t.Errorf("%v saves %v W, measured %t, want 500us and %v W that were not measured", window, saved, measured, want)
	}
}

// The more packets there are, and the more they cost, the more there is to be saved.
func TestPotentialRises(t *testing.T) {
	vm := newVM()
	saved := func(perSecond units.PacketsPerSecond, wakeUps float64, costs model.PowerCosts) units.Watts {
		vm.Tuning.Trials = []model.Trial{trial(0, wakeUps)}
		_, saved, _ := Potential(vm, fastTap(perSecond), costs, now())
		return saved
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
