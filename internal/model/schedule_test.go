package model

import (
	"math"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

func scheduled() Schedule {
	return Schedule{
		Lever: v1alpha1.LeverAffinity, Seed: 7, Start: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		Block: 10 * time.Minute, WashOut: 30 * time.Second, On: []bool{true, false, false, true}, Otherwise: true,
	}
}

func TestScheduleAt(t *testing.T) {
	s := scheduled()
	never := time.Duration(math.MinInt64)
	for since, want := range map[time.Duration]struct {
		Moment
		next time.Duration
	}{
		-200 * 365 * 24 * time.Hour:      {Moment{Block: -1, On: true}, 0},
		-1:                               {Moment{Block: -1, On: true}, 0},
		0:                                {Moment{Block: 0, On: true, Washing: true}, 10 * time.Minute},
		30*time.Second - 1:               {Moment{Block: 0, On: true, Washing: true}, 10 * time.Minute},
		30 * time.Second:                 {Moment{Block: 0, On: true}, 10 * time.Minute},
		10*time.Minute - 1:               {Moment{Block: 0, On: true}, 10 * time.Minute},
		10 * time.Minute:                 {Moment{Block: 1, Washing: true}, 20 * time.Minute},
		29 * time.Minute:                 {Moment{Block: 2}, 30 * time.Minute},
		40*time.Minute - 1:               {Moment{Block: 3, On: true}, 40 * time.Minute},
		40 * time.Minute:                 {Moment{Block: -1, On: true}, never},
		time.Duration(math.MaxInt64) / 2: {Moment{Block: -1, On: true}, never},
	} {
		now := s.Start.Add(since)
		if got := s.At(now); got != want.Moment {
			t.Errorf("%v after the start: %+v, want %+v", since, got, want.Moment)
		}
		next, is := s.Next(now)
		if is != (want.next != never) || is && !next.Equal(s.Start.Add(want.next)) {
			t.Errorf("%v after the start: the next block begins at %v, %v", since, next, is)
		}
	}
	if end := s.End(); !end.Equal(s.Start.Add(40 * time.Minute)) {
		t.Errorf("it ends at %v", end)
	}
}

func TestScheduleIsValid(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Schedule)
		want   bool
	}{
		"good":                          {func(*Schedule) {}, true},
		"the shortest blocks":           {func(s *Schedule) { s.Block = LeastBlock }, true},
		"the longest":                   {func(s *Schedule) { s.Block = MostBlock }, true},
		"no wash-out":                   {func(s *Schedule) { s.WashOut = 0 }, true},
		"as many as can be":             {func(s *Schedule) { s.On = make([]bool, MostBlocks) }, true},
		"too short":                     {func(s *Schedule) { s.Block = LeastBlock - 1 }, false},
		"too long":                      {func(s *Schedule) { s.Block = MostBlock + 1 }, false},
		"a wash-out as long as a block": {func(s *Schedule) { s.WashOut = s.Block }, false},
		"a wash-out that ends before":   {func(s *Schedule) { s.WashOut = -1 }, false},
		"no block":                      {func(s *Schedule) { s.On = nil }, false},
		"too many":                      {func(s *Schedule) { s.On = make([]bool, MostBlocks+1) }, false},
		"no start":                      {func(s *Schedule) { s.Start = time.Time{} }, false},
	} {
		s := scheduled()
		test.change(&s)
		if got := s.IsValid(); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestScheduleEqual(t *testing.T) {
	s, same := scheduled(), scheduled()
	same.Start = same.Start.In(time.FixedZone("elsewhere", 3600))
	if !s.Equal(&same) {
		t.Error("the same time by another zone is another schedule")
	}
	for name, change := range map[string]func(*Schedule){
		"lever": func(s *Schedule) { s.Lever = v1alpha1.LeverSlice }, "seed": func(s *Schedule) { s.Seed++ },
		"start": func(s *Schedule) { s.Start = s.Start.Add(time.Second) }, "block": func(s *Schedule) { s.Block++ },
		"wash-out": func(s *Schedule) { s.WashOut++ }, "otherwise": func(s *Schedule) { s.Otherwise = false },
		"blocks": func(s *Schedule) { s.On[2] = true }, "length": func(s *Schedule) { s.On = s.On[:3] },
	} {
		other := scheduled()
		change(&other)
		if s.Equal(&other) {
			t.Errorf("another %s is the same schedule", name)
		}
	}
}
