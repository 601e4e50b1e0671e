package savings

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/show/showtest"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
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

// booked has two nodes and a group with figures, one of them modelled.
func booked(t *testing.T) []byte {
	t.Helper()
	l := ledger.New()
	from := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	for _, of := range []struct {
		unit     string
		lever    model.Lever
		modelled bool
	}{{"worker-1", model.LeverAffinity, false}, {"worker-1", model.LeverBuffering, false}, {"worker-2", model.LeverAffinity, true}, {"shop/web", model.LeverTrafficShare, false}} {
		cause := l.Book(ledger.Block{
			Node: of.unit, Lever: of.lever, From: from, To: from.Add(time.Hour), On: true,
			Effect:   verify.Shrunk{Log: -math.Log(1.1), Own: 0.01, Freedom: 20},
			Measured: ledger.Measured{Seconds: 3600, Joules: 3.6e6, Modelled: of.modelled},
		}, from.Add(time.Hour))
		if cause != "" {
			t.Fatal(cause)
		}
	}
	return l.Save()
}

// TestUnits: nodes and groups are told of where ledgers were read, and one that another version
// wrote is a gap.
func TestUnits(t *testing.T) {
	f := scene()
	f.Ledgers = []v1alpha1.EnergyLedger{
		{ObjectMeta: metav1.ObjectMeta{Name: "saves"}, Status: v1alpha1.EnergyLedgerStatus{Ledger: booked(t)}},
		{ObjectMeta: metav1.ObjectMeta{Name: "fresh"}},
	}
	report := Of(f)
	showtest.Golden(t, "units", report)
	if len(report.Gaps) > 0 {
		t.Errorf("gaps %+v", report.Gaps)
	}
	f.Ledgers[1].Status.Ledger = []byte("joulevirt-ledger-99")
	gaps := Of(f).Gaps
	if len(gaps) != 1 || gaps[0].Of != "EnergyLedger fresh" || !strings.Contains(gaps[0].Message, "the manager's version") {
		t.Errorf("gaps %+v", gaps)
	}
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
