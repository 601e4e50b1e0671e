package savings

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/show/showtest"
)

func kilowattHours(value, low, high v1alpha1.Decimal) v1alpha1.Estimate {
	return v1alpha1.Estimate{Value: value, Low: low, High: high}
}

// scene has a policy with a month, a total and what models say, and one that is new.
func scene() *facts.Facts {
	own, cost, co2, without := kilowattHours("0.9", "0.8", "1"), kilowattHours("3.2", "1.9", "4.5"), kilowattHours("4.4", "2.6", "6.2"), kilowattHours("1440", "1420", "1460")
	booked := func(period string) v1alpha1.Savings {
		return v1alpha1.Savings{
			Basis: v1alpha1.BasisMeasured, Period: period, KilowattHours: kilowattHours("12.6", "7.5", "17.7"), OwnKilowattHours: &own,
			Levers: []v1alpha1.LeverSavings{
				{Lever: v1alpha1.LeverAffinity, KilowattHours: kilowattHours("14", "9", "19")}, {Lever: v1alpha1.LeverBuffering, KilowattHours: kilowattHours("-0.5", "-1.5", "0.5")},
			},
			Cost: &cost, KilogramsCO2: &co2, JoulesPerGB: "1400", JoulesPerGBWithout: &without,
		}
	}
	saves := v1alpha1.EnergyPolicy{ObjectMeta: metav1.ObjectMeta{Name: "saves"}}
	saves.Spec.Verification.ConfidencePercent = 95
	saves.Status = v1alpha1.EnergyPolicyStatus{
		Tariff:    &v1alpha1.TariffStatus{Currency: "EUR", PricePerKWh: "0.25"},
		Proven:    []v1alpha1.Saving{{Lever: v1alpha1.LeverAffinity, Milliwatts: 20500, LowMilliwatts: 12000, HighMilliwatts: 29000}},
		Potential: []v1alpha1.Saving{{Lever: v1alpha1.LeverBuffering, Modelled: true, Milliwatts: 3000, LowMilliwatts: -1000, HighMilliwatts: 7000}},
		Savings: []v1alpha1.Savings{
			booked("Total"), booked("2026-02"), booked("2026-03"),
			{Basis: v1alpha1.BasisModelled, Period: "Total", KilowattHours: kilowattHours("2", "0", "4")},
		},
	}
	fresh := v1alpha1.EnergyPolicy{ObjectMeta: metav1.ObjectMeta{Name: "fresh"}}
	return &facts.Facts{Policies: []v1alpha1.EnergyPolicy{saves, fresh}}
}

func TestTables(t *testing.T) {
	showtest.Golden(t, "savings", Of(scene()))
	showtest.Golden(t, "fresh", Of(scene(), "fresh"))
}

// TestOwnUse: what the product draws is told as a saving of less than nothing, with its interval.
func TestOwnUse(t *testing.T) {
	for _, tc := range []struct{ own, want v1alpha1.Estimate }{
		{kilowattHours("0.9", "0.8", "1"), kilowattHours("-0.9", "-1", "-0.8")},
		{kilowattHours("0", "0", "0.0"), kilowattHours("0", "0.0", "0")},
		{kilowattHours("0.1", "-0.1", "0.3"), kilowattHours("-0.1", "-0.3", "0.1")},
	} {
		if diff := cmp.Diff(&tc.want, negative(&tc.own)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", tc.own, diff)
		}
	}
}
