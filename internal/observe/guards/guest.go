package guards

import (
	"fmt"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
)

const (
	// follows is within what time of a lever's coming on a guest that ceases to be ready
	// may do so for it.
	follows = time.Minute
	// again is how often, of what is remembered for a day, it has to.
	again = 2
	// mostFailures are remembered of a guest.
	mostFailures = 16
)

// guest is what is known of whether a VM's guest is ready.
type guest struct {
	ready bool
	// failing is true when the guest was ready, and is not.
	failing  bool
	failures []failure
}

// failure is when a guest ceased to be ready, and the levers that had come on just before.
type failure struct {
	at    time.Time
	after []model.Lever
}

// Guest is what the API server says of whether a VM's guest is ready.
type Guest struct {
	PodUID, Node string
	Ready        bool
	// Since when, by the API server's clock.
	Since time.Time
	// Excused is true when the guest may cease to be ready for what is done to it: its node
	// is drained, or it migrates, is paused or ends.
	Excused bool
}

// see takes in what is said of the guest, and returns the levers that it ceased to be ready
// after: twice, and more often than without any. A guest that fails by itself does so at
// other times as well.
func (f *follow) see(now time.Time, said *Guest) []finding {
	was := f.guest.ready
	f.guest.ready = said.Ready
	f.guest.failing = !said.Ready && (was || f.guest.failing)
	if !was || said.Ready || said.Excused {
		return nil
	}
	failed := failure{at: said.Since}
	for _, name := range watched() {
		l := f.levers[name]
		if l != nil && l.on && !l.since.IsZero() && !said.Since.Before(l.before.Truncate(time.Second)) && said.Since.Sub(l.since) <= follows {
			failed.after = append(failed.after, name)
		}
	}
	f.guest.failures = slices.DeleteFunc(append(f.guest.failures, failed), func(x failure) bool { return now.Sub(x.at) > memory })
	if extra := len(f.guest.failures) - mostFailures; extra > 0 {
		f.guest.failures = slices.Delete(f.guest.failures, 0, extra)
	}
	var found []finding
	for _, name := range failed.after {
		after := 0
		for _, x := range f.guest.failures {
			if slices.Contains(x.after, name) {
				after++
			}
		}
		if all := len(f.guest.failures); after >= again && 2*after > all {
			evidence := fmt.Sprintf("%d of %d times within a day the guest ceased to be ready within %v after %s came on", after, all, follows, name)
			found = append(found, finding{name, model.GuardReadiness, hurts, evidence})
		}
	}
	return found
}
