package datapathtest

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/joulevirt/joulevirt/internal/datapath/bpf"
)

// CountHeld returns how many packets the buffering programs that are pinned below folders of a
// pattern passed at once, and held.
func CountHeld(folders string) (passed, held uint64, err error) {
	pinned, err := filepath.Glob(filepath.Join(folders, "program/buffering-*", bpf.JvMapJvState))
	if err != nil {
		return 0, 0, err
	}
	for _, path := range pinned {
		var state bpf.JvState
		states, err := ebpf.LoadPinnedMap(path, nil)
		if err == nil {
			err = errors.Join(states.Lookup(uint32(0), &state), states.Close())
		}
		if err != nil {
			return 0, 0, fmt.Errorf("read the counters of held packets: %w", err)
		}
		passed += state.Passed
		held += state.Held
	}
	return passed, held, nil
}
