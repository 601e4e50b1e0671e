package linux

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/test/hosttest"
)

// sliceHost is a host whose kernel has slices. On an older one the test looks
// that they are refused, and ends.
func sliceHost(t *testing.T, thread host.TaskID) *Host {
	t.Helper()
	h := realHost(t)
	if probeSlice() == nil {
		return h
	}
	if _, err := h.Slice(thread); !errors.Is(err, host.ErrUnsupported) {
		t.Errorf("slice of a thread: %v, want ErrUnsupported", err)
	}
	if err := h.SetSlice(thread, time.Millisecond); !errors.Is(err, host.ErrUnsupported) {
		t.Errorf("setting the slice of a thread: %v, want ErrUnsupported", err)
	}
	t.SkipNow()
	return nil
}

func wantSlice(t *testing.T, h *Host, thread host.TaskID, want time.Duration) {
	t.Helper()
	if got, err := h.Slice(thread); err != nil || got != want {
		t.Errorf("slice %v, %v; want %v", got, err, want)
	}
}

func mustSetSlice(t *testing.T, h *Host, thread host.TaskID, slice time.Duration) {
	t.Helper()
	if err := h.SetSlice(thread, slice); err != nil {
		t.Fatal(err)
	}
}

func TestRealSlice(t *testing.T) {
	vm := hosttest.StartVM(t, "shop", "web")
	thread := vm.Thread("CPU 0/TCG")
	h := sliceHost(t, thread)
	wantSlice(t, h, thread, 0)
	standard, err := defaultSlice()
	if err != nil || standard <= 0 {
		t.Fatalf("the kernel's default slice: %v, %v", standard, err)
	}
	for _, test := range []struct{ set, want time.Duration }{
		{500 * time.Microsecond, 500 * time.Microsecond},
		{20 * time.Millisecond, 20 * time.Millisecond},
		{time.Microsecond, 100 * time.Microsecond},
		{time.Second, 100 * time.Millisecond},
		{standard, standard}, // and is seen to be set all the same
		{0, 0},
	} {
		mustSetSlice(t, h, thread, test.set)
		wantSlice(t, h, thread, test.want)
	}
	imposter := thread
	imposter.Start++
	if err := h.SetSlice(imposter, time.Millisecond); !isGone(err) {
		t.Errorf("setting by a reused number: %v, want ErrGone", err)
	}
	if _, err := h.Slice(imposter); !isGone(err) {
		t.Errorf("reading by a reused number: %v, want ErrGone", err)
	}
	wantSlice(t, h, thread, 0)
	vm.End()
	if err := h.SetSlice(thread, time.Millisecond); !isGone(err) {
		t.Errorf("setting that of a thread that ended: %v, want ErrGone", err)
	}
}

// What else is scheduled by stays as it is, and what knows no slices is left.
func TestRealSliceLeavesTheRest(t *testing.T) {
	vm := hosttest.StartVM(t, "shop", "web")
	thread := vm.Thread("CPU 0/TCG")
	h := sliceHost(t, thread)
	set := func(attr unix.SchedAttr) {
		t.Helper()
		attr.Size = unix.SizeofSchedAttr
		if err := unix.SchedSetAttr(thread.TID, &attr, 0); err != nil {
			t.Fatal(err)
		}
	}
	set(unix.SchedAttr{Policy: unix.SCHED_BATCH, Nice: 7, Flags: unix.SCHED_FLAG_RESET_ON_FORK})
	for _, slice := range []time.Duration{2 * time.Millisecond, 0} {
		mustSetSlice(t, h, thread, slice)
		wantSlice(t, h, thread, slice)
		got, err := unix.SchedGetAttr(thread.TID, 0)
		if err != nil || got.Policy != unix.SCHED_BATCH || got.Nice != 7 || got.Flags&unix.SCHED_FLAG_RESET_ON_FORK == 0 {
			t.Errorf("with slice %v it is scheduled by %+v, %v", slice, got, err)
		}
	}
	set(unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: 1})
	if _, err := h.Slice(thread); !errors.Is(err, host.ErrUnsupported) {
		t.Errorf("slice of a real-time thread: %v, want ErrUnsupported", err)
	}
	if err := h.SetSlice(thread, time.Millisecond); !errors.Is(err, host.ErrUnsupported) {
		t.Errorf("setting that of a real-time thread: %v, want ErrUnsupported", err)
	}
	if got, err := unix.SchedGetAttr(thread.TID, 0); err != nil || got.Policy != unix.SCHED_FIFO || got.Priority != 1 {
		t.Errorf("the real-time thread is scheduled by %+v, %v", got, err)
	}
}
