package datapath

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/datapath/inband"
	"github.com/joulevirt/joulevirt/internal/model"
)

func TestProgramDeclarations(t *testing.T) {
	other := func(at int, to byte) []byte { return frame(700, func(f []byte) { f[at] = to }) }
	cases := map[string]struct {
		frame  []byte
		answer uint32
	}{
		"a declaration":            {frame(700, nil), redirect},
		"longer than it has to be": {append(frame(700, nil), 1, 2, 3), redirect},
		"without all padding":      {frame(700, nil)[:34], redirect},
		"cut short":                {frame(700, nil)[:33], drop},
		"cut within the magic":     {frame(700, nil)[:17], goOn},
		"of another protocol":      {other(14, 'X'), goOn},
		"of another EtherType":     {other(13, 0xB6), goOn},
		"of another version":       {other(18, 2), drop},
		"an answer":                {other(19, 2), drop},
		"of no kind":               {other(19, 0), drop},
		"to somebody":              {other(0, 2), drop},
		"to another group":         {other(5, 0x0D), drop},
		"from a group":             {other(6, 3), drop},
		"with flags of the future": {other(20, 0xFF), redirect},
	}
	r := newRig(t)
	for _, name := range sortedKeys(cases) {
		c := cases[name]
		t.Run(name, func(t *testing.T) {
			r.t = t
			r.reset()
			r.configure(nil)
			answer, _, out := r.run(r.ingress, c.frame, skb{}, 1)
			if answer != c.answer {
				t.Fatalf("answered with %d, want %d", int32(answer), int32(c.answer))
			}
			s := r.raw()
			if taken, refused := s.Taken == 1, s.Refused == 1; taken != (c.answer == redirect) || refused != (c.answer == drop) {
				t.Errorf("%d taken, %d refused", s.Taken, s.Refused)
			}
			if c.answer == goOn && cmp.Diff(c.frame, out) != "" {
				t.Errorf("what is not ours was changed:\n%x\n%x", c.frame, out)
			}
		})
	}
	r.t = t
}

// What the guest gets as an answer.
func TestProgramAnswers(t *testing.T) {
	r := newRig(t)
	for name, c := range map[string]struct {
		tolerated uint32
		change    func(*Config)
		lease     time.Duration
		window    uint32
		second    uint32
	}{
		"all that is allowed": {700, nil, ever, 500, 10_000},
		"less, on the grid":   {499, nil, ever, 250, 10_000},
		"next to nothing":     {124, nil, ever, 0, 10_000},
		"nothing":             {0, nil, ever, 0, 10_000},
		"without end":         {1<<32 - 1, nil, ever, 500, 10_000},
		"no lease":            {700, nil, start, 0, 10_000},
		"floods only":         {700, func(c *Config) { c.Window = 0 }, ever, 0, 10_000},
		"no configuration":    {700, func(c *Config) { *c = Config{} }, ever, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r.t = t
			r.reset()
			r.configure(c.change)
			must(t, r.lease.extend(c.lease))
			_, _, out := r.run(r.ingress, frame(c.tolerated, nil), skb{}, 1)
			want := frame(c.window, func(f []byte) {
				copy(f, []byte{2, 0, 0, 0, 0, 7, 0x01, 0x80, 0xC2, 0, 0, 0x0E})
				f[19], f[21] = 2, 0
				binary.BigEndian.PutUint32(f[30:], c.second)
			})
			if diff := cmp.Diff(want, out[:len(want)]); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			if _, ok := inband.ParseAnswer(out[:inband.Size]); !ok {
				t.Error("the guest's tools do not understand it")
			}
		})
	}
	r.t = t
}

func TestProgramGoesByDeclarations(t *testing.T) {
	r := newRig(t)
	r.configure(func(c *Config) { c.FloodPackets = 0 })
	r.fast(plain(0))
	r.run(r.ingress, frame(300, nil), skb{}, 1)
	s := r.stats()
	if want := (&model.GuestTools{ToleratedMicroseconds: 300, TransmitMicroseconds: 250}); cmp.Diff(want, s.Guest) != "" || s.Window != 250*us {
		t.Errorf("declared %+v, want %+v; window %s, want 250us", s.Guest, want, s.Window)
	}
	r.wait(30*time.Second + ms)
	if s := r.stats(); s.Guest != nil {
		t.Errorf("an old declaration stands: %+v", s)
	}
}

// No guest keeps its host busy with declarations.
func TestProgramDeclarationsAreLimited(t *testing.T) {
	r := newRig(t)
	r.configure(nil)
	for second := range 3 {
		r.set(start + time.Duration(second)*time.Second)
		for i := range 15 {
			answer, _, _ := r.run(r.ingress, frame(700, nil), skb{}, 1)
			if want := map[bool]uint32{true: redirect, false: drop}[i < 10]; answer != want {
				t.Fatalf("second %d: declaration %d was answered with %d, want %d", second, i, answer, want)
			}
		}
	}
	if s := r.raw(); s.Taken != 30 || s.Refused != 15 {
		t.Errorf("%d taken, %d refused", s.Taken, s.Refused)
	}
}
