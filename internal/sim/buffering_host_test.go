package sim

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
)

func TestBufferingFollowsTheKernel(t *testing.T) {
	r := receiving(t, packets(20_000), nil)
	if list, err := r.Buffered(r.id); err != nil || list != nil {
		t.Errorf("nothing is buffered: %+v, %v", list, err)
	}
	taps := func(want host.Tap) {
		t.Helper()
		got, err := r.Taps(r.id)
		if diff := cmp.Diff([]host.Tap{want}, got); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
	}
	own := host.Tap{Name: tap, Index: 2, Owner: host.QueueDefault, Queue: "fq_codel 0:"}
	taps(own)
	r.must(r.Unbuffer(r.id, tap))
	taps(own)
	r.must(r.Buffer(r.id, tap, usual(500*time.Microsecond)))
	r.Advance(5 * time.Second)
	if got := r.sample(); got.Held != 0 || got.Passed != 100_000 || got.Window != 500*time.Microsecond {
		t.Errorf("without a lease: %+v", got)
	}
	taps(host.Tap{Name: tap, Index: 2, Owner: host.QueueOurs, Queue: "fq 4a57:", Buffered: true})
	r.must(r.KeepBuffering(2500 * time.Millisecond))
	was := r.sample()
	r.Advance(time.Minute)
	if is := r.sample(); is.Active-was.Active != 2500*time.Millisecond || is.Held-was.Held != 50_000 {
		t.Errorf("a lease of 2.5 s: %+v", is)
	}
	was = r.sample()
	r.buffer(usual(250 * time.Microsecond))
	if is := r.sample(); is.Window != 250*time.Microsecond || is.Passed != was.Passed || is.Held != was.Held {
		t.Errorf("other settings: %+v, before %+v", is, was)
	}
	for name, bad := range map[string]struct {
		err  error
		want error
	}{
		"other device": {r.Buffer(r.id, "tap1", usual(0)), host.ErrGone},
		"other process": {func() error {
			gone := r.id
			gone.Start++
			return errors.Join(r.Buffer(gone, tap, usual(0)), r.Unbuffer(gone, tap))
		}(), host.ErrGone},
	} {
		if !errors.Is(bad.err, bad.want) {
			t.Errorf("%s: %v", name, bad.err)
		}
	}
	if err := r.Buffer(r.id, tap, model.Buffering{Window: 7, OnPackets: 1}); err == nil {
		t.Error("a window that there is not is accepted")
	}
	r.must(r.Unbuffer(r.id, tap))
	taps(own)
	r.must(r.SetTapQueue(r.pod, "tbf 8001:"))
	if err := r.Buffer(r.id, tap, usual(0)); !errors.Is(err, host.ErrForeign) {
		t.Errorf("buffering over a foreign queue: %v", err)
	}
	r.must(r.Unbuffer(r.id, tap))
	taps(host.Tap{Name: tap, Index: 2, Owner: host.QueueForeign, Queue: "tbf 8001:"})
	r.must(r.SetTapQueue(r.pod, ""))
	taps(host.Tap{Name: tap, Index: 3, Owner: host.QueueDefault, Queue: "fq_codel 0:"})
}

func TestAKernelWithoutBuffering(t *testing.T) {
	for _, without := range []bool{false, true} {
		r := receiving(t, packets(20_000), func(c *Config) { c.NoBuffering = without })
		if err := r.Buffer(r.id, tap, usual(0)); errors.Is(err, host.ErrUnsupported) != without {
			t.Errorf("without buffering %v: %v", without, err)
		}
		if capability(t, r.Host, "Buffering") == without {
			t.Errorf("without buffering %v: the capability says otherwise", without)
		}
	}
}
