package shape

import (
	"context"
	"fmt"
	"testing"
	"time"
)

const (
	// lateBy is how late this machine may be with what is due for figures to count: well
	// below a tenth of the half seconds that the shortest are of.
	lateBy = 20 * time.Millisecond
	// attempts are made before what is wrong counts all the same.
	attempts = 5
)

// undisturbed measures on real devices, and anew when something is wrong and this machine was
// late itself meanwhile: when packets then come says nothing of gates.
func undisturbed(t *testing.T, measure func(*testing.T) (wrong []string)) {
	t.Helper()
	for attempt := 1; ; attempt++ {
		late := watchLateness()
		var wrong []string
		done := t.Run(fmt.Sprint("attempt ", attempt), func(t *testing.T) { wrong = measure(t) })
		by := late()
		if !done {
			return
		}
		if len(wrong) > 0 && by > lateBy && attempt < attempts {
			t.Logf("anew, for this machine was late by %v: %q", by, wrong)
			continue
		}
		for _, what := range wrong {
			t.Errorf("%s, while this machine was late by %v", what, by)
		}
		return
	}
}

// watchLateness returns what ends it, and tells how late this process was at most with what
// was due each few milliseconds.
func watchLateness() (end func() time.Duration) {
	const each = 5 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	worst := make(chan time.Duration)
	go func() {
		longest, last := time.Duration(0), time.Now()
		for ctx.Err() == nil {
			<-time.After(each)
			now := time.Now()
			longest, last = max(longest, now.Sub(last)-each), now
		}
		worst <- longest
	}()
	return func() time.Duration {
		cancel()
		return <-worst
	}
}
