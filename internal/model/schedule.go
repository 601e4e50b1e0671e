package model

import (
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

const (
	// NodeSlot is the slot of levers that act on nodes: seven minutes do not divide the hour, so
	// that jobs of each hour come to lie in different slots.
	NodeSlot = 7 * time.Minute
	// GroupSlot is the slot of levers TrafficShare and Offload: connections leave slowly.
	GroupSlot = 3 * NodeSlot
	// TrialOneIn has one slot of each pair off.
	TrialOneIn = 2
	// MostOneIn is the longest stratum.
	MostOneIn = 100
)

// Schedule switches one lever of a node or group on and off, so that what the lever saves shows.
// Time is cut into slots on fixed boundaries, and slots into strata of OneIn. In each stratum one
// slot, which the seed draws, is off. So a schedule has no beginning and no end, and whoever
// knows lever, unit and time knows whether the lever is on.
type Schedule struct {
	Lever v1alpha1.Lever
	// Seed of the draws, see SeedOf.
	Seed int64
	// Slot is the length of each slot.
	Slot time.Duration
	// OneIn is how many slots are a stratum: 2 in a trial, more in a hold-back.
	OneIn int
}

// workloadPrefix begins the names of HybridWorkloads as units. A group's name has one slash.
const workloadPrefix = "hybridworkload/"

// UnitOfWorkload is the name of the unit that a HybridWorkload, as "namespace/name", is.
func UnitOfWorkload(workload string) string { return workloadPrefix + workload }

// WorkloadOf returns the HybridWorkload of a unit as "namespace/name". False: the unit is a node or a group.
func WorkloadOf(unit string) (workload string, ok bool) {
	workload, ok = strings.CutPrefix(unit, workloadPrefix)
	return workload, ok && strings.Contains(workload, "/")
}

// LeversOf returns the levers that are tried on a unit: a node, a group as "namespace/name", or a
// HybridWorkload, see UnitOfWorkload. Slices protect, and save nothing themselves.
func LeversOf(unit string) []v1alpha1.Lever {
	if _, ok := WorkloadOf(unit); ok {
		return []v1alpha1.Lever{v1alpha1.LeverOffload}
	}
	if strings.Contains(unit, "/") {
		return []v1alpha1.Lever{v1alpha1.LeverTrafficShare}
	}
	return []v1alpha1.Lever{v1alpha1.LeverAffinity, v1alpha1.LeverBuffering, v1alpha1.LeverShaping}
}

// movesClients returns whether a lever has clients connect elsewhere. That takes longer than what agents
// switch.
func movesClients(lever v1alpha1.Lever) bool {
	return lever == v1alpha1.LeverTrafficShare || lever == v1alpha1.LeverOffload
}

// NewSchedule returns the schedule of a lever on a unit, see LeversOf.
func NewSchedule(lever v1alpha1.Lever, unit string, oneIn int) *Schedule {
	s := &Schedule{Lever: lever, Seed: SeedOf(lever, unit), Slot: NodeSlot, OneIn: oneIn}
	if movesClients(lever) {
		s.Slot = GroupSlot
	}
	return s
}

// SeedOf returns the seed of a lever's draws on a unit: the FNV-1a hash of both names.
func SeedOf(lever v1alpha1.Lever, unit string) int64 {
	const offset, prime = 14695981039346656037, 1099511628211
	hash := uint64(offset)
	for _, b := range []byte(string(lever) + "\x00" + unit) {
		hash = (hash ^ uint64(b)) * prime
	}
	return int64(hash)
}

// WashOut is how much of each slot is not judged, because what a lever did in the slot before
// lasts: the time that it needs to settle, and the age of a reading.
func (s *Schedule) WashOut() time.Duration {
	if movesClients(s.Lever) {
		return 5 * time.Minute
	}
	return 75 * time.Second
}

// Moment is where a time lies in a schedule.
type Moment struct {
	// Slot that the time lies in, counted from 1970.
	Slot int64
	// On reports whether the lever is on.
	On bool
	// Washing is true in the wash-out at the slot's start.
	Washing bool
}

// IsValid reports whether an agent can follow the schedule.
func (s *Schedule) IsValid() bool {
	return s.Slot >= time.Minute && s.Slot <= time.Hour && s.OneIn >= TrialOneIn && s.OneIn <= MostOneIn
}

// SlotAt is the number of the slot that a time lies in.
func (s *Schedule) SlotAt(at time.Time) int64 { return floorDiv(at.UnixNano(), int64(s.Slot)) }

// StartOf a slot.
func (s *Schedule) StartOf(slot int64) time.Time { return time.Unix(0, slot*int64(s.Slot)).UTC() }

// Stratum that a slot lies in.
func (s *Schedule) Stratum(slot int64) int64 { return floorDiv(slot, int64(s.OneIn)) }

// OffSlot is the slot of a stratum in which the lever is off.
func (s *Schedule) OffSlot(stratum int64) int64 {
	drawn := scramble(uint64(s.Seed) ^ scramble(uint64(stratum)^scramble(uint64(s.OneIn))))
	return stratum*int64(s.OneIn) + int64(drawn%uint64(s.OneIn))
}

// IsOn reports whether the lever is on in a slot.
func (s *Schedule) IsOn(slot int64) bool { return s.OffSlot(s.Stratum(slot)) != slot }

// At finds a time in a valid schedule.
func (s *Schedule) At(now time.Time) Moment {
	slot := s.SlotAt(now)
	return Moment{Slot: slot, On: s.IsOn(slot), Washing: now.Sub(s.StartOf(slot)) < s.WashOut()}
}

// Next is when the slot ends that a time lies in.
func (s *Schedule) Next(now time.Time) time.Time { return s.StartOf(s.SlotAt(now) + 1) }

// Equal reports whether both switch the same lever at the same times.
func (s *Schedule) Equal(o *Schedule) bool {
	if s == nil || o == nil {
		return s == o
	}
	return *s == *o
}

func floorDiv(x, y int64) int64 {
	if q := x / y; x%y >= 0 {
		return q
	}
	return x/y - 1
}

// scramble spreads the bits of a number (the finalizer of splitmix64).
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Switch is what an agent, or for groups and HybridWorkloads the manager, does of a schedule.
type Switch struct {
	Lever v1alpha1.Lever `json:"lever"`
	// Seed and OneIn are those of the schedule.
	Seed  int64 `json:"seed"`
	OneIn int   `json:"oneIn"`
	// On reports whether the lever is on, Since when.
	On    bool      `json:"on"`
	Since time.Time `json:"since"`
}

// Done returns what is in force of the schedule, and since when, by what was in force before. settled is true
// when all is now as the lever being on, or off, has it. Nil: that is not known.
func (s *Schedule) Done(was *Switch, on, settled bool, now time.Time) *Switch {
	if s == nil || !s.IsValid() {
		return nil
	}
	same := was != nil && was.Seed == s.Seed && was.OneIn == s.OneIn && was.On == on
	if !same && !settled {
		return nil
	}
	done := Switch{Lever: s.Lever, Seed: s.Seed, OneIn: s.OneIn, On: on, Since: now}
	if same {
		done.Since = was.Since
	}
	return &done
}
