package evidence

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify"
)

const (
	// mostText is the length of the longest text of an entry.
	mostText = 128
	// mostLog bounds effects: more than halves or doubles the energy nothing does.
	mostLog = 1.0
	// leastFreedom is that of two units, and mostFreedom as good as all.
	leastFreedom, mostFreedom = 1.0, 1e6
	leastUnits, mostUnits     = 2, 1_000_000
	mostPairs                 = 1_000_000_000
	// rounding is how far a percentage may be from what its logarithm says.
	rounding = 0.011
)

func levers() []model.Lever {
	return []model.Lever{model.LeverAffinity, model.LeverBuffering, model.LeverShaping, model.LeverSlice, model.LeverTrafficShare}
}

// check returns all that is wrong with an entry.
func (f *entryFile) check() error {
	errs := []error{
		f.checkLever(),
		text("cpuModel", f.CPUModel, true), f.checkKernel(), text("idle", f.Idle, false), text("clocks", f.Clocks, false), f.checkWorkload(),
		within("log", f.Log, -mostLog, mostLog), within("stdErr", f.StdErr, 1e-6, mostLog),
		within("freedom", f.Freedom, leastFreedom, mostFreedom), within("between", f.Between, 0, mostLog),
		whole("units", f.Units, leastUnits, mostUnits), whole("pairs", f.Pairs, leastUnits, mostPairs),
		f.checkDates(), text("version", f.Version, true),
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return f.checkPercents()
}

func missing(field string) error { return fmt.Errorf("%s: is missing: it is required", field) }

func (f *entryFile) checkLever() error {
	if f.Lever == nil {
		return missing("lever")
	}
	if !slices.Contains(levers(), model.Lever(*f.Lever)) {
		return fmt.Errorf("lever: %.64q is unknown: use one of %v", *f.Lever, levers())
	}
	return nil
}

func (f *entryFile) checkKernel() error {
	if err := text("kernel", f.Kernel, true); err != nil {
		return err
	}
	if !regexp.MustCompile(`^[0-9]{1,4}\.[0-9]{1,4}$`).MatchString(*f.Kernel) {
		return fmt.Errorf(`kernel: %q is no kernel: write its first two numbers in quotes, such as "6.12"`, *f.Kernel)
	}
	return nil
}

func (f *entryFile) checkWorkload() error {
	if f.Workload == nil {
		return missing("workload")
	}
	if !model.IsWord(*f.Workload) {
		return fmt.Errorf("workload: %.64q is no word: write letters only, such as Interactive", *f.Workload)
	}
	return nil
}

func (f *entryFile) checkDates() error {
	var dates []time.Time
	for _, field := range []struct {
		name  string
		value *string
	}{{"from", f.From}, {"until", f.Until}} {
		if field.value == nil {
			return missing(field.name)
		}
		date, err := time.Parse(dateLayout, *field.value)
		if err != nil {
			return fmt.Errorf(`%s: %.64q is no date: write year, month and day in quotes, such as "2026-03-01"`, field.name, *field.value)
		}
		dates = append(dates, date)
	}
	if dates[1].Before(dates[0]) {
		return fmt.Errorf("until: %s is before from, %s: exchange them", *f.Until, *f.From)
	}
	return nil
}

// checkPercents holds what is there for readers against what is reckoned with: a file in
// which one was edited without the other says two things.
func (f *entryFile) checkPercents() error {
	if f.SavedPercent != nil && !(math.Abs(*f.SavedPercent-percent(*f.Log)) <= rounding) {
		return fmt.Errorf("savedPercent: %g is not what log %g says, %g: correct one, or remove savedPercent",
			*f.SavedPercent, *f.Log, percent(*f.Log))
	}
	if f.Interval == nil {
		return nil
	}
	low, high := percents(verify.Effect{Log: *f.Log, StdErr: *f.StdErr, Freedom: *f.Freedom})
	near := func(a, b float64) bool { return math.Abs(a-b) <= rounding*max(1, math.Abs(b)) }
	if len(f.Interval) != 2 || !near(f.Interval[0], low) || !near(f.Interval[1], high) {
		return fmt.Errorf("interval95Percent: %.6g is not what log, stdErr and freedom say, [%g %g]: correct one, or remove interval95Percent",
			f.Interval, low, high)
	}
	return nil
}

func text(field string, value *string, required bool) error {
	switch {
	case value == nil:
		return missing(field)
	case required && *value == "":
		return fmt.Errorf("%s: is empty: it is required", field)
	case len(*value) > mostText:
		return fmt.Errorf("%s: has %d bytes: at most %d are allowed", field, len(*value), mostText)
	case strings.ContainsFunc(*value, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }):
		return fmt.Errorf("%s: %q has characters that cannot be printed: remove them", field, *value)
	}
	return nil
}

func within(field string, value *float64, least, most float64) error {
	if value == nil {
		return missing(field)
	}
	if !(*value >= least && *value <= most) {
		return fmt.Errorf("%s: %g is out of bounds: write %g to %g", field, *value, least, most)
	}
	return nil
}

func whole(field string, value *int, least, most int) error {
	if value == nil {
		return missing(field)
	}
	if *value < least || *value > most {
		return fmt.Errorf("%s: %d is out of bounds: write %d to %d", field, *value, least, most)
	}
	return nil
}
