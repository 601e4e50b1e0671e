package model

import (
	"math"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// TestSchedulesAreDrawnByNamesAndTimeAlone: in each stratum one slot is off, each as often as the
// others, and other levers, units and strata are drawn apart.
func TestSchedulesAreDrawnByNamesAndTimeAlone(t *testing.T) {
	for _, oneIn := range []int{2, 5, 20, MostOneIn} {
		s := NewSchedule(v1alpha1.LeverAffinity, "node-1", oneIn)
		if !s.IsValid() || !s.Equal(NewSchedule(v1alpha1.LeverAffinity, "node-1", oneIn)) {
			t.Errorf("one in %d: %+v", oneIn, s)
		}
		const strata = 20_000
		counts := make([]int, oneIn)
		together := 0
		other, lever := NewSchedule(v1alpha1.LeverAffinity, "node-2", oneIn), NewSchedule(v1alpha1.LeverBuffering, "node-1", oneIn)
		for stratum := int64(-10); stratum < strata-10; stratum++ {
			off := s.OffSlot(stratum)
			for slot := stratum * int64(oneIn); slot < (stratum+1)*int64(oneIn); slot++ {
				if s.IsOn(slot) == (slot == off) || s.Stratum(slot) != stratum {
					t.Fatalf("one in %d, stratum %d: slot %d is on: %t, off is %d", oneIn, stratum, slot, s.IsOn(slot), off)
				}
			}
			counts[off-stratum*int64(oneIn)]++
			if other.OffSlot(stratum) == off {
				together++
			}
			if lever.OffSlot(stratum) == off {
				together++
			}
		}
		mean := float64(strata) / float64(oneIn)
		for at, count := range counts {
			if math.Abs(float64(count)-mean) > 5*math.Sqrt(mean) {
				t.Errorf("one in %d: slot %d of a stratum is off %d times of %d", oneIn, at, count, strata)
			}
		}
		if math.Abs(float64(together)-2*mean) > 5*math.Sqrt(2*mean) {
			t.Errorf("one in %d: two schedules are off together %d times of %d", oneIn, together, 2*strata)
		}
	}
}

func TestTimesInASchedule(t *testing.T) {
	s := NewSchedule(v1alpha1.LeverAffinity, "node", TrialOneIn)
	start := s.StartOf(s.SlotAt(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)))
	slot := s.SlotAt(start)
	for after, want := range map[time.Duration]Moment{
		-time.Nanosecond:   {slot - 1, s.IsOn(slot - 1), false},
		0:                  {slot, s.IsOn(slot), true},
		75*time.Second - 1: {slot, s.IsOn(slot), true},
		75 * time.Second:   {slot, s.IsOn(slot), false},
		7*time.Minute - 1:  {slot, s.IsOn(slot), false},
		7 * time.Minute:    {slot + 1, s.IsOn(slot + 1), true},
	} {
		if got := s.At(start.Add(after)); got != want {
			t.Errorf("after %v: %+v, want %+v", after, got, want)
		}
	}
	if next := s.Next(start.Add(time.Second)); !next.Equal(start.Add(7 * time.Minute)) {
		t.Errorf("next at %v", next)
	}
	if early := time.Date(1960, 1, 1, 0, 0, 0, 1, time.UTC); s.StartOf(s.SlotAt(early)).After(early) {
		t.Error("a slot before 1970 begins after a time in it")
	}
	if group := NewSchedule(v1alpha1.LeverTrafficShare, "shop/web", TrialOneIn); group.Slot != 21*time.Minute || group.WashOut() != 5*time.Minute {
		t.Errorf("%+v", group)
	}
}
