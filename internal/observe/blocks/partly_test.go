package blocks

import (
	"testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// TestPartOfALever: blocks are excluded until the lever came to all VMs once, and not when VMs
// come and wait after that.
func TestPartOfALever(t *testing.T) {
	const inBlock3 = 600 + 3*300 + 150
	partly := func(lever v1alpha1.Lever, from, before int) func(int, *Sight) bool {
		return func(second int, s *Sight) bool {
			if second >= from && second < before {
				s.Partly = []v1alpha1.Lever{lever}
			}
			return true
		}
	}
	for name, tc := range map[string]struct {
		change func(second int, s *Sight) bool
		want   map[int]string
	}{
		"it comes in parts": {partly(v1alpha1.LeverAffinity, 0, inBlock3), map[int]string{
			0: NotAsScheduled, 1: NotAsScheduled, 2: NotAsScheduled, 3: NotAsScheduled,
		}},
		"it is whole in the wash-out of block 3":  {partly(v1alpha1.LeverAffinity, 0, inBlock3-120), map[int]string{0: NotAsScheduled, 1: NotAsScheduled, 2: NotAsScheduled}},
		"it is whole, and VMs that come wait":     {partly(v1alpha1.LeverAffinity, inBlock3, hours*3600), nil},
		"another lever comes in parts":            {partly(v1alpha1.LeverBuffering, 0, hours*3600), nil},
		"it is whole when the first block begins": {partly(v1alpha1.LeverAffinity, 0, 600), nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(3)
			w.checkReported(t, w.run(tc.change), tc.want)
		})
	}
}
