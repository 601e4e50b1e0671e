package rates

import (
	"strings"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
)

// switching is a round of an agent that follows two schedules.
func switching() *model.NodeRates {
	r := round(60)
	r.Switches = []model.Switch{
		{Lever: model.LeverAffinity, Seed: -7, Start: start(), Block: 3, On: true, Since: start().Add(30 * time.Second)},
		{Lever: model.LeverBuffering, Seed: 7, Start: start().Add(time.Hour), Block: -1, Since: start()},
	}
	return r
}

func TestValidateSwitches(t *testing.T) {
	first := func(change func(*model.Switch)) func(*model.NodeRates) {
		return func(r *model.NodeRates) { change(&r.Switches[0]) }
	}
	for name, tc := range map[string]struct {
		change func(*model.NodeRates)
		want   string
	}{
		"good":                  {func(*model.NodeRates) {}, ""},
		"none":                  {func(r *model.NodeRates) { r.Switches = nil }, ""},
		"a newer agent's lever": {first(func(s *model.Switch) { s.Lever = "Sleep" }), ""},
		"the last block":        {first(func(s *model.Switch) { s.Block = model.MostBlocks - 1 }), ""},
		"a clock that was set":  {first(func(s *model.Switch) { s.Since = start().Add(90 * time.Second) }), ""},
		"no lever":              {first(func(s *model.Switch) { s.Lever = "" }), "switches[0].lever"},
		"a lever of two words":  {first(func(s *model.Switch) { s.Lever = "two words" }), `"two words"`},
		"a long lever":          {first(func(s *model.Switch) { s.Lever = model.Lever(strings.Repeat("x", 9999)) }), "switches[0].lever"},
		"a lever twice":         {first(func(s *model.Switch) { s.Lever = model.LeverBuffering }), "lever Buffering twice"},
		"no start":              {first(func(s *model.Switch) { s.Start = time.Time{} }), "switches[0].start"},
		"no since":              {first(func(s *model.Switch) { s.Since = time.Time{} }), "since is missing"},
		"no such block":         {first(func(s *model.Switch) { s.Block = -2 }), "switches[0].block is -2"},
		"a block beyond":        {first(func(s *model.Switch) { s.Block = model.MostBlocks }), "switches[0].block is 1024"},
		"of the future":         {first(func(s *model.Switch) { s.Since = start().Add(time.Hour) }), "after the round"},
		"too many":              {func(r *model.NodeRates) { r.Switches = make([]model.Switch, maxSwitches+1) }, "17 switches"},
	} {
		r := switching()
		tc.change(r)
		checkValidation(t, name, r, tc.want)
	}
}

// What an agent sends arrives as it was.
func TestDecodeSwitches(t *testing.T) {
	checkArrives(t, switching())
}
