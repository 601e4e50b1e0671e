package guesttools

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/joulevirt/joulevirt/internal/datapath/inband"
)

// rename has sysfs show a card under another name, as udev renames cards at boot.
func (s *scene) rename(from, to string) {
	s.Helper()
	s.must(os.Rename(filepath.Join(s.sys, "class/net", from), filepath.Join(s.sys, "class/net", to)))
}

func TestCardsGetOtherNamesAndAddresses(t *testing.T) {
	s := newScene(t)
	s.open(500 * us)
	s.agree(500 * us)
	s.pass(20_000)
	s.holder.calls = nil
	s.write("card0", "address", "02:00:00:00:00:77\n")
	s.pass(20_000)
	s.pass(20_000)
	if got := s.declaration(); got.Source != (inband.MAC{2, 0, 0, 0, 0, 0x77}) || got.Transmit != 500*us || !got.Defers {
		t.Errorf("with another address it declares %+v", got)
	}
	s.wantCalls("another address", "extend", "extend")
	s.rename("card0", "renamed0")
	s.must(s.tools.round())
	s.wantCalls("another name", "extend")
	force := Half{State: InForce}
	s.wantStatus("another name", CardStatus{
		Card: "renamed0", WindowMicroseconds: 500, OnPacketsPerSecond: onPackets, Receive: force, Transmit: force, Deferring: true,
	})
	s.must(s.tools.close())
	s.rename("renamed0", "card0")
	s.wantCalls("at the end", "release card0")
	s.wantDeferral("at the end", deferral{})
}

func TestACardIsRenamedAfterADeath(t *testing.T) {
	s := newScene(t)
	s.open(500 * us)
	s.agree(500 * us)
	s.pass(20_000)
	s.kill()
	s.rename("card0", "renamed0")
	s.holder.calls = nil
	if n, err := Restore(s.options(0)); err != nil || n != 1 {
		t.Errorf("restored %d, %v", n, err)
	}
	s.rename("renamed0", "card0")
	s.wantCalls("renamed", "release card0")
	s.wantDeferral("renamed", deferral{})
}

// A card that is no longer among those to tend is given back too.
func TestACardIsTakenFromTheTools(t *testing.T) {
	s := newScene(t)
	s.open(500 * us)
	s.agree(500 * us)
	s.pass(20_000)
	s.holder.calls = nil
	s.must(os.Remove(filepath.Join(s.sys, "class/net/card0/device/driver")))
	s.must(s.tools.round())
	s.wantCalls("another driver", "release card0")
	s.wantDeferral("another driver", deferral{})
}

// What cannot be read any more must not keep a card as a host once wanted it.
func TestACardThatCannotBeRead(t *testing.T) {
	s := newScene(t)
	s.open(500 * us)
	s.agree(500 * us)
	s.pass(20_000)
	s.write("card0", "statistics/rx_packets", "many")
	s.holder.calls = nil
	for range 2 {
		s.now += inband.Fresh
		s.tools.logFailure(s.tools.round())
	}
	s.wantDeferral("nobody answers", deferral{})
	s.wantStatus("nobody answers", CardStatus{Card: "card0", Receive: Half{State: NoAnswer}, Transmit: Half{State: NoAnswer}})
	if n := strings.Count(s.log.String(), "some part of the round failed"); n != 1 {
		t.Errorf("the log has %d lines of one failure:\n%s", n, s.log.String())
	}
}

// Others of the network may send frames that look like ours from afar.
func TestJunkDoesNotCrowdOutAnswers(t *testing.T) {
	s := newScene(t)
	s.open(500 * us)
	s.declaration()
	junk := frameOf(inband.Answer{Destination: s.card.address})
	for range 2 { // the second round declares again
		for range 500 {
			s.must(s.host.send(junk))
		}
		s.pass(0)
	}
	s.agree(500 * us)
	s.pass(0)
	status, err := ReadStatus(s.state)
	s.must(err)
	if got := status.Cards[0].Transmit.State; got != InForce {
		t.Errorf("among junk the card is %s, want %s", got, InForce)
	}
}
