package placement

import (
	"slices"
	"time"
)

// Pace bounds how fast VMs move.
type Pace struct {
	// AtOnce and PerHour are the most moves that run at a time, and that start within an hour.
	AtOnce, PerHour int
	// Stands is how long VMs must have been proposed to leave a node, each time, before they are
	// moved only to save energy.
	Stands time.Duration
}

// DefaultPace is that of a policy that sets none.
func DefaultPace() Pace { return Pace{AtOnce: 2, PerHour: 10, Stands: 30 * time.Minute} }

const (
	// leastRest is how long any VM stays where it came to.
	leastRest = time.Hour
	// rest is how long one stays that does not suffer, doubled with each move within a day up to
	// longestRest.
	rest        = 2 * time.Hour
	longestRest = 16 * time.Hour
	day         = 24 * time.Hour
)

// Memory is what is known of moves that were proposed and made. The zero value knows none.
type Memory struct {
	// Proposed is since when VMs are proposed to leave a node to save energy, by its name.
	Proposed map[string]time.Time
	// Moved are the times of the moves of a day, the oldest first, by NAMESPACE/NAME of the VM.
	Moved map[string][]time.Time
}

func (v *VM) key() string { return v.Namespace + "/" + v.Name }

// Restrain returns a problem in which VMs that moved lately stay where they are.
func (m Memory) Restrain(p Problem, now time.Time) Problem {
	p.VMs = slices.Clone(p.VMs)
	for i := range p.VMs {
		vm := &p.VMs[i]
		times := m.Moved[vm.key()]
		if len(times) == 0 {
			continue
		}
		since := now.Sub(times[len(times)-1])
		if since < leastRest && vm.Stays == "" {
			vm.Stays = ReasonMovedLately
		}
		if since < min(longestRest, rest<<(len(times)-1)) && vm.StaysWhenWell == "" {
			vm.StaysWhenWell = ReasonMovedLately
		}
	}
	return p
}

// Next returns the moves that start now, beside a number that still run, to nodes for which no
// other runs, and what is to be remembered.
func (m Memory) Next(p Problem, r Result, running []Move, pace Pace, now time.Time) ([]Move, Memory) {
	next := Memory{Proposed: map[string]time.Time{}, Moved: map[string][]time.Time{}}
	lastHour := 0
	for vm, times := range m.Moved {
		times = slices.DeleteFunc(slices.Clone(times), func(t time.Time) bool { return now.Sub(t) > day })
		for _, t := range times {
			if now.Sub(t) < time.Hour {
				lastHour++
			}
		}
		if len(times) > 0 {
			next.Moved[vm] = times
		}
	}
	for _, move := range r.Moves {
		if from := p.Nodes[move.From].Name; move.Reason == ReasonSavesNow && next.Proposed[from].IsZero() {
			next.Proposed[from] = now
			if since, known := m.Proposed[from]; known {
				next.Proposed[from] = since
			}
		}
	}
	taken := map[int]bool{}
	for _, move := range running {
		taken[move.To] = true
	}
	var start []Move
	room := min(pace.AtOnce-len(running), pace.PerHour-lastHour)
	for _, move := range r.Moves {
		if len(start) >= room {
			break
		}
		early := move.Reason == ReasonSavesNow && now.Sub(next.Proposed[p.Nodes[move.From].Name]) < pace.Stands
		if early || taken[move.To] {
			continue
		}
		taken[move.To] = true
		start = append(start, move)
		vm := p.VMs[move.VM].key()
		next.Moved[vm] = append(next.Moved[vm], now)
	}
	return start, next
}
