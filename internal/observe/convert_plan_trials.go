package observe

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

// schedules reads what switches levers of a node. One that no agent would follow is left
// out, and so is a lever that is named twice: the agent leaves it off, and no block of it
// counts.
func schedules(trials []v1alpha1.TrialSchedule) []model.Schedule {
	times := map[v1alpha1.Lever]int{}
	for i := range trials {
		times[trials[i].Lever]++
	}
	var out []model.Schedule
	for i := range trials {
		if s, ok := schedule(&trials[i]); ok && times[trials[i].Lever] == 1 {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(x, y model.Schedule) int { return strings.Compare(string(x.Lever), string(y.Lever)) })
	return out
}

func schedule(t *v1alpha1.TrialSchedule) (model.Schedule, bool) {
	if t.Blocks < 1 || t.Blocks > model.MostBlocks {
		return model.Schedule{}, false
	}
	s := model.Schedule{
		Lever: model.Lever(t.Lever), Seed: t.Seed, Start: t.Start.Time,
		Block: t.BlockLength.Duration, WashOut: t.WashOut.Duration,
		On: slices.Repeat([]bool{true}, int(t.Blocks)), Otherwise: t.Otherwise,
	}
	for _, off := range t.OffBlocks {
		if off < 0 || off >= t.Blocks || !s.On[off] {
			return model.Schedule{}, false
		}
		s.On[off] = false
	}
	return s, s.IsValid()
}

// trialSchedules writes schedules as the API holds them: times are cut to seconds.
func trialSchedules(schedules []model.Schedule) []v1alpha1.TrialSchedule {
	var out []v1alpha1.TrialSchedule
	for i := range schedules {
		s := &schedules[i]
		t := v1alpha1.TrialSchedule{
			Lever: v1alpha1.Lever(s.Lever), Seed: s.Seed, Start: metav1.Time{Time: s.Start.Truncate(time.Second)},
			BlockLength: metav1.Duration{Duration: s.Block.Truncate(time.Second)},
			WashOut:     metav1.Duration{Duration: s.WashOut.Truncate(time.Second)},
			Blocks:      int32(len(s.On)), Otherwise: s.Otherwise,
		}
		for block, on := range s.On {
			if !on {
				t.OffBlocks = append(t.OffBlocks, int32(block))
			}
		}
		out = append(out, t)
	}
	slices.SortFunc(out, func(x, y v1alpha1.TrialSchedule) int { return strings.Compare(string(x.Lever), string(y.Lever)) })
	return out
}
