package nodevm

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestKeptUp(t *testing.T) {
	for name, c := range map[string]struct {
		of   Measured
		d    Direction
		busy bool
	}{
		"an interrupt for each packet":            {Measured{Packets: 5000, Interrupts: 5000}, Receive, false},
		"interrupts for four of five":             {Measured{Packets: 5000, Interrupts: 4000}, Receive, false},
		"interrupts for fewer":                    {Measured{Packets: 5000, Interrupts: 3999}, Receive, true},
		"kicks do not count for what is received": {Measured{Packets: 5000, Kicks: 5000}, Receive, true},
		"a kick for each packet":                  {Measured{Packets: 5000, Kicks: 5000}, Transmit, false},
		"kicks for fewer than four of five":       {Measured{Packets: 5000, Interrupts: 5000, Kicks: 2032}, Transmit, true},
	} {
		if err := c.of.KeptUp(c.d); errors.Is(err, ErrTooBusy) != c.busy {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSlowestClocks(t *testing.T) {
	node := &Node{slowness: maxSlowness}
	err := node.Slower(t.Context(), fmt.Errorf("%w: 61 %% of the packets left late", ErrTooBusy))
	if !errors.Is(err, ErrTooBusy) || !strings.Contains(err.Error(), "1/40") || !strings.Contains(err.Error(), "61 %") {
		t.Errorf("a node whose clocks are as slow as they may be: %v", err)
	}
	if node.Slowness() != maxSlowness {
		t.Errorf("its clocks run at 1/%d", node.Slowness())
	}
}
