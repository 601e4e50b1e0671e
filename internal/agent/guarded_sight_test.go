package agent

import (
	"errors"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/agent/guard"
	"github.com/joulevirt/joulevirt/internal/agent/sample"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
)

// What packets tell of buffering follows from what was done to them, not from orders.
func TestWhetherPacketsWereHeld(t *testing.T) {
	const second = time.Second
	tap := func(active time.Duration, flood *model.Flood) []host.BufferSample {
		return []host.BufferSample{{Name: "tap0", Active: active, Flood: flood}}
	}
	for name, test := range map[string]struct {
		old, now []host.BufferSample
		setting  guard.Setting
		want     guard.Setting
	}{
		"held":                  {tap(second, nil), tap(2*second, nil), guard.On, guard.On},
		"held for a part":       {tap(second, nil), tap(second+second/4, nil), guard.On, guard.Unsure},
		"came too slowly":       {tap(second, nil), tap(second, nil), guard.On, guard.Off},
		"in a flood":            {tap(second, &model.Flood{}), tap(2*second, &model.Flood{}), guard.On, guard.Unsure},
		"a flood begins":        {tap(second, nil), tap(2*second, &model.Flood{}), guard.On, guard.Unsure},
		"a flood ends":          {tap(second, &model.Flood{}), tap(second, nil), guard.On, guard.Unsure},
		"cannot be read":        {tap(second, nil), nil, guard.On, guard.Unsure},
		"could not be read":     {nil, tap(second, nil), guard.On, guard.Unsure},
		"counts anew":           {tap(second, nil), tap(0, nil), guard.On, guard.Unsure},
		"the lever is off":      {nil, nil, guard.Off, guard.Off},
		"the lever was changed": {tap(second, nil), tap(2*second, nil), guard.Unsure, guard.Unsure},
	} {
		at := time.Unix(1000, 0)
		old, vm := &sample.VM{At: at, Buffered: test.old}, &sample.VM{At: at.Add(second), Buffered: test.now}
		if test.now == nil {
			vm.BufferedErr = errors.New("no counters")
		}
		if _, got := packets(old, vm, test.setting); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}
