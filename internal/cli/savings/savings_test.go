package savings

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/test/showtest"
)

func kilowattHours(value, low, high v1alpha1.Decimal) v1alpha1.Estimate {
	return v1alpha1.Estimate{Value: value, Low: low, High: high}
}

// scene has a policy with months, totals and a modelled saving, and one that is new.
func scene() *facts.Facts {
	cost, co2, without := kilowattHours("3.2", "1.9", "4.5"), kilowattHours("4.4", "2.6", "6.2"), kilowattHours("1440", "1420", "1460")
	booked := func(period string) v1alpha1.Savings {
		return v1alpha1.Savings{
			Basis: v1alpha1.BasisMeasured, Period: period, KilowattHours: kilowattHours("12.6", "7.5", "17.7"),
			Levers: []v1alpha1.LeverSavings{
				{Lever: v1alpha1.LeverAffinity, KilowattHours: kilowattHours("14", "9", "19")}, {Lever: v1alpha1.LeverBuffering, KilowattHours: kilowattHours("-0.5", "-1.5", "0.5")},
			},
			Cost: &cost, KilogramsCO2: &co2, JoulesPerGB: "1400", JoulesPerGBWithout: &without,
		}
	}
	saves := v1alpha1.EnergyPolicy{ObjectMeta: metav1.ObjectMeta{Name: "saves"}}
	saves.Spec.Tariff = &v1alpha1.Tariff{Currency: "EUR"}
	saves.Status = v1alpha1.EnergyPolicyStatus{
		Proven:    []v1alpha1.Saving{{Lever: v1alpha1.LeverAffinity, Watts: v1alpha1.Estimate{Value: "20.5", Low: "12", High: "29"}}},
		Potential: []v1alpha1.Saving{{Lever: v1alpha1.LeverBuffering, Watts: v1alpha1.Estimate{Value: "3", Low: "-1", High: "7"}}},
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
	if fresh := Of(scene(), "fresh"); len(fresh.Items) != 1 || len(fresh.Items[0].Booked) != 0 {
		t.Errorf("a new policy has %+v", fresh.Items)
	}
}
