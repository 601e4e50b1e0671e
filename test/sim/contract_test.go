package sim

import (
	"errors"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/host"
)

func TestAKernelWithoutSlices(t *testing.T) {
	for _, without := range []bool{false, true} {
		h := server(t, func(c *Config) { c.NoSlices = without })
		process, err := h.AddVM(VM{Namespace: "a", Name: "b"})
		if err != nil {
			t.Fatal(err)
		}
		_, got := h.Slice(process)
		set := h.SetSlice(process, time.Millisecond)
		if errors.Is(got, host.ErrUnsupported) != without || errors.Is(set, host.ErrUnsupported) != without {
			t.Errorf("without slices %v: %v, %v", without, got, set)
		}
		if has := capability(t, h, "SchedSlice"); has == without {
			t.Errorf("without slices %v: capability %v", without, has)
		}
	}
}

func capability(t *testing.T, h *Host, name string) bool {
	t.Helper()
	facts, err := h.Facts()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range facts.Capabilities {
		if c.Name == name {
			return c.Available
		}
	}
	t.Fatalf("no capability %s", name)
	return false
}
