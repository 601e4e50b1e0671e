package observe

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

// ChangeTimes reports whether a policy's windows and freezes let something new be done.
type ChangeTimes struct {
	// Hold says why not.
	Hold model.Hold
	// Err names the field that cannot be read: nothing new is done until it is corrected.
	Err error
	// Again is when the answer may be another. Zero: when the policy changes.
	Again time.Time
}

// Changes reads a policy's times of changes. Times are UTC, so that neither the
// manager's place nor daylight saving moves them.
func Changes(policy *v1alpha1.EnergyPolicy, now time.Time) ChangeTimes {
	now = now.UTC()
	windows, err := recurring("spec.budgets.windows", policy.Spec.Budgets.Windows, now)
	if err != nil {
		return unreadableTimes(err)
	}
	freezes, err := recurring("spec.budgets.freezes", policy.Spec.Budgets.Freezes, now)
	if err != nil {
		return unreadableTimes(err)
	}
	out := ChangeTimes{Again: earlier(windows.changes(now), freezes.changes(now))}
	switch {
	case freezes.until(now).After(now):
		out.Hold.Reason, out.Hold.Message = v1alpha1.ReasonInFreeze, "it is a time of the policy's spec.budgets.freezes"
	case len(windows) > 0 && !windows.until(now).After(now):
		out.Hold.Reason, out.Hold.Message = v1alpha1.ReasonOutsideChangeWindow, "none of the policy's spec.budgets.windows is open"
	default:
		return out
	}
	out.Hold.Message += ": nothing new is done"
	if !out.Again.IsZero() {
		out.Hold.Message += " before " + out.Again.Format(time.RFC3339)
	}
	return out
}

func unreadableTimes(err error) ChangeTimes {
	return ChangeTimes{Err: err, Hold: model.Hold{
		Reason: v1alpha1.ReasonInvalidSchedule, Message: fmt.Sprintf("%v: correct it; nothing new is done until then", err),
	}}
}

// recurrence is a time that comes again and again.
type recurrence struct {
	starts cron.Schedule
	length time.Duration
}

type recurrences []recurrence

// cronFields is how many a schedule has: when in the hour, the day, the month, the year and
// the week.
const cronFields = 5

// recurring reads recurring times. The error names the first that cannot be read, or
// never comes.
func recurring(field string, windows []v1alpha1.ChangeWindow, now time.Time) (recurrences, error) {
	parser := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	out := make(recurrences, 0, len(windows))
	for i, window := range windows {
		// The parser takes a time zone in front, and panics where nothing follows.
		if len(strings.Fields(window.Schedule)) != cronFields || strings.Contains(window.Schedule, "=") {
			return nil, fmt.Errorf("%s[%d].schedule %q: it has to have five cron fields, such as 0 22 * * 1-5", field, i, window.Schedule)
		}
		starts, err := parser.Parse(window.Schedule)
		if err != nil {
			return nil, fmt.Errorf("%s[%d].schedule %q: %w", field, i, window.Schedule, err)
		}
		if starts.Next(now).IsZero() {
			return nil, fmt.Errorf("%s[%d].schedule %q: no such time comes in the next five years", field, i, window.Schedule)
		}
		out = append(out, recurrence{starts, window.Duration.Duration})
	}
	return out, nil
}

// end is when the occurrence ends that a time lies in, the earliest of them. Zero: it
// lies in none.
func (r *recurrence) end(at time.Time) time.Time {
	start := r.starts.Next(at.Add(-r.length))
	if start.IsZero() || start.After(at) {
		return time.Time{}
	}
	return start.Add(r.length)
}

// until is when the last of those occurrences ends that a time lies in. Zero: it lies in
// none.
func (r recurrences) until(at time.Time) time.Time {
	var last time.Time
	for i := range r {
		if end := r[i].end(at); end.After(last) {
			last = end
		}
	}
	return last
}

// changes is when something begins or ends next. Zero: never.
func (r recurrences) changes(at time.Time) time.Time {
	var next time.Time
	for i := range r {
		next = earlier(earlier(next, r[i].starts.Next(at)), r[i].end(at))
	}
	return next
}

func earlier(x, y time.Time) time.Time {
	if x.IsZero() || !y.IsZero() && y.Before(x) {
		return y
	}
	return x
}
