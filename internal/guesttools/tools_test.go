package guesttools

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/datapath"
	"github.com/joulevirt/joulevirt/internal/datapath/inband"
)

func TestWithoutAnAnswerNothingChanges(t *testing.T) {
	s := newScene(t)
	s.open(500 * us)
	for range 5 {
		s.pass(50_000)
	}
	d := s.declaration()
	if want := (inband.Declaration{Source: s.card.address, Nonce: d.Nonce, Tolerated: 500 * us}); d != want {
		t.Errorf("declared %+v, want %+v", d, want)
	}
	s.answer(inband.Answer{Destination: d.Source, Nonce: d.Nonce + 1, Window: 500 * us, OnPackets: onPackets})
	s.pass(50_000)
	s.answer(inband.Answer{Destination: inband.MAC{2, 3}, Nonce: s.tools.states[s.card.index].nonce, Window: 500 * us, OnPackets: onPackets})
	s.pass(50_000)
	s.wantCalls("with answers to others")
	s.wantDeferral("with answers to others", deferral{})
	none := Half{State: NoAnswer}
	s.wantStatus("with answers to others", CardStatus{Card: "card0", Receive: none, Transmit: none})
	if _, err := os.Stat(filepath.Join(s.state, stateName)); err == nil {
		t.Error("a change was recorded")
	}
	s.must(s.tools.close())
	if status, err := ReadStatus(s.state); err != nil || status.Running {
		t.Errorf("after the end: %+v, %v", status, err)
	}
}

func TestBothHalves(t *testing.T) {
	s := newScene(t)
	s.open(500 * us)
	s.agree(time.Millisecond)
	s.pass(20_000)
	s.wantCalls("an answer came", "hold card0 500µs", "extend")
	s.wantDeferral("fast packets", deferral{2, 500_000})
	force := Half{State: InForce}
	s.wantStatus("fast packets", CardStatus{
		Card: "card0", WindowMicroseconds: 500, OnPacketsPerSecond: onPackets, Receive: force, Transmit: force, Deferring: true,
	})
	s.pass(20_000)
	if d := s.declaration(); d.Transmit != 500*us || !d.Defers {
		t.Errorf("declared %+v", d)
	}
	s.wantCalls("as before", "extend")

	t.Log("the host shortens the window, packets come slower, the host stops")
	s.now += time.Second
	d := s.tools.states[s.card.index]
	s.answer(inband.Answer{Destination: s.card.address, Nonce: d.nonce, Window: 250 * us, OnPackets: onPackets})
	s.pass(40_000)
	s.wantCalls("a shorter window", "hold card0 250µs", "extend")
	s.wantDeferral("a shorter window", deferral{2, 250_000})
	s.pass(10)
	s.wantDeferral("slow for a second", deferral{2, 250_000})
	s.pass(10)
	s.wantDeferral("slow for two seconds", deferral{})
	for range 8 {
		s.pass(10)
	}
	if last := s.holder.holds["card0"]; !last.IsZero() {
		t.Errorf("ten seconds after the last answer the card holds %+v", last)
	}
	s.holder.calls = nil
	for range 60 {
		s.pass(10)
	}
	if calls := s.holder.calls; len(calls) == 0 || calls[len(calls)-1] != "release card0" {
		t.Errorf("a minute later: %v, want it to be released", calls)
	}
	s.holder.calls = nil
	s.must(s.tools.close())
	s.wantCalls("at the end")
}

func TestEndAndDeathUndo(t *testing.T) {
	for _, how := range []string{"end", "death, then restore", "death, then the next run"} {
		t.Run(how, func(t *testing.T) {
			s := newScene(t)
			s.open(500 * us)
			s.agree(500 * us)
			s.pass(20_000)
			s.wantDeferral("fast packets", deferral{2, 500_000})
			s.holder.calls = nil
			switch how {
			case "end":
				s.must(s.tools.close())
			case "death, then restore":
				s.kill()
				if n, err := Restore(s.options(0)); err != nil || n != 1 {
					t.Errorf("restored %d, %v", n, err)
				}
			default:
				s.kill()
				s.open(500 * us)
			}
			s.wantCalls(how, "release card0")
			s.wantDeferral(how, deferral{})
			if how != "death, then the next run" {
				if n, err := Restore(s.options(0)); err != nil || n != 0 {
					t.Errorf("restored again %d, %v", n, err)
				}
				s.wantCalls("again")
			}
		})
	}
}

func TestRestoreLeavesOthersAlone(t *testing.T) {
	s := newScene(t)
	s.open(500 * us)
	s.agree(500 * us)
	s.pass(20_000)
	s.kill()
	t.Log("another card came under the name")
	s.write("card0", "ifindex", "77")
	s.holder.calls = nil
	if _, err := Restore(s.options(0)); err != nil {
		t.Error(err)
	}
	s.wantCalls("another card", "release card0") // which has nothing to be done on it
	s.wantDeferral("another card", deferral{2, 500_000})

	t.Log("somebody set other times after the death")
	s.write("card0", "ifindex", strconv.Itoa(s.card.index))
	j := mustOpen(t, s.state)
	s.must(j.set(entry{Card: "card0", Index: s.card.index, Deferred: true}))
	s.must(j.close())
	s.write("card0", flushTime, "20000")
	if _, err := Restore(s.options(0)); err != nil {
		t.Error(err)
	}
	s.wantDeferral("other times", deferral{2, 20_000})
}

func TestWhatIsInTheWay(t *testing.T) {
	force := Half{State: InForce}
	for _, test := range []struct {
		name              string
		prepare           func(s *scene)
		longest           time.Duration
		receive, transmit State
		window            int
		deferral          deferral
	}{
		{"no fq or eBPF", func(s *scene) { s.holder.fail = fmt.Errorf("no fq: %w", datapath.ErrUnsupported) }, 500 * us,
			InForce, Unsupported, 500, deferral{2, 500_000}},
		{"another's queue", func(s *scene) { s.holder.fail = fmt.Errorf("htb 1: %w", datapath.ErrForeign) }, 500 * us,
			InForce, Foreign, 500, deferral{2, 500_000}},
		{"another's deferral", func(s *scene) { s.write("card0", flushTime, "20000") }, 500 * us,
			Foreign, InForce, 500, deferral{0, 20_000}},
		{"the guest declines", func(*scene) {}, 0, Declined, Declined, 0, deferral{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newScene(t)
			test.prepare(s)
			s.open(test.longest)
			s.agree(500 * us)
			s.pass(20_000)
			s.pass(20_000)
			status, err := ReadStatus(s.state)
			s.must(err)
			got := status.Cards[0]
			if got.Receive.State != test.receive || got.Transmit.State != test.transmit || got.WindowMicroseconds != test.window {
				t.Errorf("status %+v, want %s, %s, %d us", got, test.receive, test.transmit, test.window)
			}
			for _, half := range []Half{got.Receive, got.Transmit} {
				if (half.Message == "") != (half == force || half.State == Declined) {
					t.Errorf("half %+v, want a message when something is in the way", half)
				}
			}
			s.wantDeferral("two rounds later", test.deferral)
			if n := strings.Count(s.log.String(), "transmit half"); n > 2 {
				t.Errorf("the log has %d lines of one change:\n%s", n, s.log.String())
			}
			if s.holder.fail != nil {
				s.wantCalls("tried once", "hold card0 500µs", "release card0")
			}
			s.must(s.tools.close())
			s.wantDeferral("at the end", map[bool]deferral{false: {}, true: test.deferral}[test.receive == Foreign])
		})
	}
}

func TestSomebodyChangesTheDeferral(t *testing.T) {
	s := newScene(t)
	s.open(500 * us)
	s.agree(500 * us)
	s.pass(20_000)
	s.write("card0", hardIRQs, "7")
	s.pass(20_000)
	s.pass(20_000)
	s.must(s.tools.close())
	s.wantDeferral("left to them", deferral{7, 500_000})
}

func TestAnOldKernelHasNoDeferral(t *testing.T) {
	s := newScene(t)
	s.must(os.Remove(filepath.Join(s.sys, "class/net/card0", hardIRQs)))
	s.open(500 * us)
	s.agree(500 * us)
	s.pass(20_000)
	status, err := ReadStatus(s.state)
	s.must(err)
	if got := status.Cards[0]; got.Receive.State != Unsupported || got.Transmit.State != InForce {
		t.Errorf("status %+v", got)
	}
	if _, err := os.Stat(filepath.Join(s.sys, "class/net/card0", hardIRQs)); err == nil {
		t.Error("the file was made")
	}
}

func TestCardsComeAndGo(t *testing.T) {
	s := newScene(t)
	s.open(500 * us)
	s.agree(500 * us)
	s.pass(20_000)
	s.must(os.RemoveAll(filepath.Join(s.sys, "class/net/card0")))
	s.now += time.Second
	s.must(s.tools.round())
	if len(s.tools.states) != 0 || len(s.tools.journal.entries) != 0 {
		t.Errorf("tended %v, recorded %v", s.tools.states, s.tools.journal.entries)
	}
	s.show("card0", driver)
	s.now += time.Second
	s.must(s.tools.round())
	if len(s.tools.states) != 1 {
		t.Error("the card that came is not tended")
	}
}

func TestOnlyTheCardsThatAreNamed(t *testing.T) {
	s := newScene(t)
	found, err := cards{sysRoot: s.sys, only: []string{"other0", "absent"}}.find()
	if err != nil || len(found) != 1 || found[0].name != "other0" {
		t.Errorf("found %v, %v", found, err)
	}
	found, err = cards{sysRoot: s.sys}.find()
	if diff := cmp.Diff([]card{s.card}, found, cmp.AllowUnexported(card{})); diff != "" || err != nil {
		t.Errorf("cards of virtio, %v (-want +got):\n%s", err, diff)
	}
}
