package rates

import (
	"math"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// buffered is a round with everything that an agent says of how packets are held.
func buffered() *model.NodeRates {
	r := round(1)
	r.VMs[0].Buffering = &model.BufferingRates{
		WindowMicroseconds: 250, ActiveShare: 0.9, PassedPerSecond: 100, HeldPerSecond: 20_000, BunchesPerSecond: 3600,
		DropsPerSecond: ptr.To[units.PacketsPerSecond](2),
		GuestTools:     &model.GuestTools{ToleratedMicroseconds: 300, TransmitMicroseconds: 250, DefersInterrupts: true},
		Flood:          &model.Flood{SegmentsPerSecond: 3e5, MeanBytes: 64, SYNShare: 0.98, Sources: 20_000, ReplyShare: 0.01},
	}
	return r
}

func TestValidateBuffering(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for name, tc := range map[string]struct {
		change func(*model.BufferingRates)
		want   string
	}{
		"good":                      {func(*model.BufferingRates) {}, ""},
		"only during floods":        {func(b *model.BufferingRates) { b.WindowMicroseconds, b.ActiveShare = 0, 0 }, ""},
		"the longest window":        {func(b *model.BufferingRates) { b.WindowMicroseconds, b.ActiveShare = 1000, 1 }, ""},
		"nothing of the guest":      {func(b *model.BufferingRates) { b.GuestTools, b.Flood, b.DropsPerSecond = nil, nil, nil }, ""},
		"a window of its own":       {func(b *model.BufferingRates) { b.WindowMicroseconds = 251 }, "windowMicroseconds is 251"},
		"a negative window":         {func(b *model.BufferingRates) { b.WindowMicroseconds = -125 }, "windowMicroseconds is -125"},
		"a window beyond time":      {func(b *model.BufferingRates) { b.WindowMicroseconds = math.MaxInt }, "windowMicroseconds"},
		"held for ever":             {func(b *model.BufferingRates) { b.ActiveShare = 1.01 }, "activeShare is 1.01"},
		"a share that is no number": {func(b *model.BufferingRates) { b.ActiveShare = nan }, "activeShare is NaN"},
		"passed infinitely":         {func(b *model.BufferingRates) { b.PassedPerSecond = units.PacketsPerSecond(inf) }, "rates"},
		"held negatively":           {func(b *model.BufferingRates) { b.HeldPerSecond = -1 }, "rates"},
		"bunches without number":    {func(b *model.BufferingRates) { b.BunchesPerSecond = units.PerSecond(nan) }, "rates"},
		"drops without number":      {func(b *model.BufferingRates) { *b.DropsPerSecond = units.PacketsPerSecond(nan) }, "dropsPerSecond is NaN"},
		"a guest of the past":       {func(b *model.BufferingRates) { b.GuestTools.ToleratedMicroseconds = -1 }, "guestTools"},
		"a patient guest":           {func(b *model.BufferingRates) { b.GuestTools.TransmitMicroseconds = math.MaxUint32 }, ""},
		"more than a frame has":     {func(b *model.BufferingRates) { b.GuestTools.ToleratedMicroseconds = math.MaxUint32 + 1 }, "guestTools"},
		"a flood without number":    {func(b *model.BufferingRates) { b.Flood.SegmentsPerSecond = units.PacketsPerSecond(nan) }, "flood"},
		"a flood of mountains":      {func(b *model.BufferingRates) { b.Flood.MeanBytes = 1e10 }, "flood"},
		"more SYN than segments":    {func(b *model.BufferingRates) { b.Flood.SYNShare = 1.1 }, "flood"},
		"sources below none":        {func(b *model.BufferingRates) { b.Flood.Sources = -1 }, "flood"},
		"sources beyond all":        {func(b *model.BufferingRates) { b.Flood.Sources = math.MaxInt }, "flood"},
		"replies without number":    {func(b *model.BufferingRates) { b.Flood.ReplyShare = inf }, "flood"},
	} {
		r := buffered()
		tc.change(r.VMs[0].Buffering)
		checkValidation(t, name, r, tc.want)
	}
}

// What an agent sends of buffering arrives as it was.
func TestDecodeBuffering(t *testing.T) {
	checkArrives(t, buffered())
}
