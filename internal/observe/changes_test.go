package observe

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

func recurringAt(schedule string, length time.Duration) v1alpha1.ChangeWindow {
	return v1alpha1.ChangeWindow{Schedule: schedule, Duration: metav1.Duration{Duration: length}}
}

func changing(windows, freezes []v1alpha1.ChangeWindow) *v1alpha1.EnergyPolicy {
	policy := &v1alpha1.EnergyPolicy{}
	policy.Spec.Budgets.Windows, policy.Spec.Budgets.Freezes = windows, freezes
	return policy
}

func TestChanges(t *testing.T) {
	type times []v1alpha1.ChangeWindow
	nights := times{recurringAt("0 22 * * 1-5", 8*time.Hour)}
	for name, tc := range map[string]struct {
		windows, freezes times
		now              string
		reason           string
		words, again     string
	}{
		"always":                  {nil, nil, "2026-03-02T12:00:00Z", "", "", ""},
		"before the window":       {nights, nil, "2026-03-02T21:59:59Z", "OutsideChangeWindow", "before 2026-03-02T22:00:00Z", "2026-03-02T22:00:00Z"},
		"as it opens":             {nights, nil, "2026-03-02T22:00:00Z", "", "", "2026-03-03T06:00:00Z"},
		"over midnight":           {nights, nil, "2026-03-03T05:59:59Z", "", "", "2026-03-03T06:00:00Z"},
		"as it closes":            {nights, nil, "2026-03-03T06:00:00Z", "OutsideChangeWindow", "before 2026-03-03T22:00:00Z", "2026-03-03T22:00:00Z"},
		"Friday's lasts":          {nights, nil, "2026-03-07T05:00:00Z", "", "", "2026-03-07T06:00:00Z"},
		"none at the weekend":     {nights, nil, "2026-03-07T12:00:00Z", "OutsideChangeWindow", "before 2026-03-09T22:00:00Z", "2026-03-09T22:00:00Z"},
		"reported elsewhere":      {nights, nil, "2026-03-02T23:30:00+02:00", "OutsideChangeWindow", "before 2026-03-02T22:00:00Z", "2026-03-02T22:00:00Z"},
		"in a freeze":             {nil, times{recurringAt("0 0 24 12 *", 72*time.Hour)}, "2026-12-25T08:00:00Z", "InFreeze", "before 2026-12-27T00:00:00Z", "2026-12-27T00:00:00Z"},
		"a freeze in the window":  {nights, times{recurringAt("30 22 * * *", time.Hour)}, "2026-03-02T22:45:00Z", "InFreeze", "before 2026-03-02T23:30:00Z", "2026-03-02T23:30:00Z"},
		"a freeze till the end":   {nights, times{recurringAt("30 22 * * *", 12*time.Hour)}, "2026-03-02T22:45:00Z", "InFreeze", "before 2026-03-03T06:00:00Z", "2026-03-03T06:00:00Z"},
		"the end of the window":   {nights, times{recurringAt("0 3 * * *", time.Hour)}, "2026-03-02T22:45:00Z", "", "", "2026-03-03T03:00:00Z"},
		"without a break":         {times{recurringAt("*/30 * * * *", time.Hour)}, nil, "2026-03-02T12:10:00Z", "", "", "2026-03-02T12:30:00Z"},
		"frozen for ever":         {nil, times{recurringAt("* * * * *", time.Minute)}, "2026-03-02T12:10:30Z", "InFreeze", "nothing new is done", "2026-03-02T12:11:00Z"},
		"cannot be read":          {times{nights[0], recurringAt("99 * * * *", time.Hour)}, nil, "2026-03-02T12:00:00Z", "InvalidSchedule", `spec.budgets.windows[1].schedule "99 * * * *": `, ""},
		"a freeze cannot be read": {nights, times{recurringAt("0 0 * XYZ *", time.Hour)}, "2026-03-02T23:00:00Z", "InvalidSchedule", `spec.budgets.freezes[0].schedule`, ""},
		"30 February":             {times{recurringAt("0 0 30 2 *", time.Hour)}, nil, "2026-03-02T12:00:00Z", "InvalidSchedule", "next five years", ""},
		"a zone and nothing more": {times{recurringAt("TZ=UTC", time.Hour)}, nil, "2026-03-02T12:00:00Z", "InvalidSchedule", "five cron fields", ""},
	} {
		now, err := time.Parse(time.RFC3339, tc.now)
		if err != nil {
			t.Fatal(err)
		}
		got := Changes(changing(tc.windows, tc.freezes), now)
		again := ""
		if !got.Again.IsZero() {
			again = got.Again.Format(time.RFC3339)
		}
		if got.Hold.Reason != tc.reason || !strings.Contains(got.Hold.Message, tc.words) || again != tc.again || (got.Err != nil) != (tc.reason == v1alpha1.ReasonInvalidSchedule) {
			t.Errorf("%s: %+v, looked at again %s, error %v; want %s, %q, again %s", name, got.Hold, again, got.Err, tc.reason, tc.words, tc.again)
		}
	}
}

// Windows and freezes hold each minute as a clock that runs through them says, and nothing is
// done before the time that is given.
func TestChangesMinuteByMinute(t *testing.T) {
	start := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	type rule struct{ minute, hour, day int } // day -1: each
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		draw := func() (rules []rule, windows []v1alpha1.ChangeWindow) {
			for range r.IntN(3) {
				at := rule{r.IntN(60), r.IntN(24), r.IntN(8) - 1}
				day := "*"
				if at.day >= 0 {
					day = fmt.Sprint(at.day)
				}
				rules = append(rules, at)
				windows = append(windows, recurringAt(fmt.Sprintf("%d %d * * %s", at.minute, at.hour, day), time.Duration(1+r.IntN(1500))*time.Minute))
			}
			return rules, windows
		}
		windowRules, windows := draw()
		freezeRules, freezes := draw()
		left := make([]time.Duration, len(windows)+len(freezes))
		var predicted time.Time
		for minute := range 10 * 24 * 60 {
			at := start.Add(time.Duration(minute) * time.Minute)
			open := func(rules []rule, windows []v1alpha1.ChangeWindow, left []time.Duration) (any bool) {
				for i, rule := range rules {
					left[i] = max(0, left[i]-time.Minute)
					if at.Minute() == rule.minute && at.Hour() == rule.hour && (rule.day < 0 || int(at.Weekday()) == rule.day%7) {
						left[i] = max(left[i], windows[i].Duration.Duration)
					}
					any = any || left[i] > 0
				}
				return any
			}
			inWindow, frozen := open(windowRules, windows, left), open(freezeRules, freezes, left[len(windows):])
			if minute < 8*24*60 || minute%7 != 0 {
				continue // what began before the start is over, and it is often enough
			}
			want := string("")
			switch {
			case frozen:
				want = v1alpha1.ReasonInFreeze
			case len(windows) > 0 && !inWindow:
				want = v1alpha1.ReasonOutsideChangeWindow
			}
			got := Changes(changing(windows, freezes), at)
			if got.Hold.Reason != want {
				t.Fatalf("seed %d at %v: %q, want %q: windows %v, freezes %v", seed, at, got.Hold.Reason, want, windows, freezes)
			}
			if want == "" && at.Before(predicted) {
				t.Fatalf("seed %d: nothing was to be done before %v, and changes are allowed at %v", seed, predicted, at)
			}
			predicted = time.Time{}
			if _, text, found := strings.Cut(got.Hold.Message, "before "); found {
				predicted, _ = time.Parse(time.RFC3339, text)
			}
		}
	}
}

// No schedule makes the manager fall over.
func FuzzChanges(f *testing.F) {
	for _, schedule := range []string{"0 22 * * 1-5", "TZ= ", "CRON_TZ=x * * * * *", "*/0 * * * *", "60-0 * * * *", "? ? ? ? ?", "* * 31 2 *", "1-1-1 * * * *"} {
		f.Add(schedule, int64(time.Hour))
	}
	f.Fuzz(func(t *testing.T, schedule string, length int64) {
		now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		got := Changes(changing([]v1alpha1.ChangeWindow{recurringAt(schedule, time.Duration(length))}, nil), now)
		if got.Err != nil && got.Hold.Reason != v1alpha1.ReasonInvalidSchedule {
			t.Errorf("%v, and %+v", got.Err, got.Hold)
		}
		if !got.Again.IsZero() && !got.Again.After(now) {
			t.Errorf("looked at again at %v, it is %v", got.Again, now)
		}
	})
}
