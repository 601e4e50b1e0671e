package guesttools

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/datapath/inband"
	"github.com/joulevirt/joulevirt/internal/model"
)

const (
	us = time.Microsecond
	// onPackets is 5 to a window of 500 us.
	onPackets = 10_000
)

func answered(window time.Duration) *inband.Answer {
	return &inband.Answer{Window: window, OnPackets: onPackets}
}

// watch gives decide a round a second, with the packets of each second and the answers
// that come in it, and returns the last wish.
func watch(longest time.Duration, packets []uint64, answers map[int]*inband.Answer) (memory, wish) {
	var m memory
	var w wish
	s := observation{now: time.Hour, received: 1e9}
	for i, n := range packets {
		s.now += time.Second
		s.received += n
		s.answer = answers[i]
		m, w = decide(m, s, longest)
	}
	return m, w
}

func seconds(runs ...uint64) (packets []uint64) {
	for i := 0; i < len(runs); i += 2 {
		for range runs[i] {
			packets = append(packets, runs[i+1])
		}
	}
	return packets
}

func always(window time.Duration) map[int]*inband.Answer {
	answers := map[int]*inband.Answer{}
	for i := range 100 {
		answers[i] = answered(window)
	}
	return answers
}

func TestDecide(t *testing.T) {
	holds := func(window time.Duration) model.Buffering {
		return model.Buffering{Window: window, OnPackets: onPackets}
	}
	for _, test := range []struct {
		name    string
		longest time.Duration
		packets []uint64
		answers map[int]*inband.Answer
		want    wish
	}{{
		name: "no answer: as it is", longest: 500 * us, packets: seconds(30, 50_000),
	}, {
		name: "slow packets", longest: 500 * us, packets: seconds(3, 100), answers: always(500 * us),
		want: wish{attached: true, transmit: holds(500 * us)},
	}, {
		name: "fast packets", longest: 500 * us, packets: seconds(3, 10_000), answers: always(500 * us),
		want: wish{attached: true, transmit: holds(500 * us), flush: 500 * us},
	}, {
		name: "just too slow", longest: 500 * us, packets: seconds(3, 9_999), answers: always(500 * us),
		want: wish{attached: true, transmit: holds(500 * us)},
	}, {
		name: "the host's window is less", longest: 500 * us, packets: seconds(3, 20_000), answers: always(250 * us),
		want: wish{attached: true, transmit: holds(250 * us), flush: 250 * us},
	}, {
		name: "the guest tolerates less", longest: 300 * us, packets: seconds(3, 20_000), answers: always(time.Millisecond),
		want: wish{attached: true, transmit: holds(250 * us), flush: 250 * us},
	}, {
		name: "fewer than two to a window", longest: time.Millisecond, packets: seconds(3, 15_999), answers: always(125 * us),
		want: wish{attached: true, transmit: holds(125 * us)},
	}, {
		name: "two to a window", longest: time.Millisecond, packets: seconds(3, 16_000), answers: always(125 * us),
		want: wish{attached: true, transmit: holds(125 * us), flush: 125 * us},
	}, {
		name: "the guest declines", longest: 0, packets: seconds(3, 20_000), answers: always(time.Millisecond),
	}, {
		name: "slower than on, faster than off", longest: 500 * us, packets: seconds(2, 10_000, 20, 7_000), answers: always(500 * us),
		want: wish{attached: true, transmit: holds(500 * us), flush: 500 * us},
	}, {
		name: "slow for a second", longest: 500 * us, packets: seconds(2, 10_000, 1, 10), answers: always(500 * us),
		want: wish{attached: true, transmit: holds(500 * us), flush: 500 * us},
	}, {
		name: "slow for two seconds", longest: 500 * us, packets: seconds(2, 10_000, 2, 10), answers: always(500 * us),
		want: wish{attached: true, transmit: holds(500 * us)},
	}, {
		name: "an answer stands for less than ten seconds", longest: 500 * us, packets: seconds(10, 20_000),
		answers: map[int]*inband.Answer{0: answered(500 * us)},
		want:    wish{attached: true, transmit: holds(500 * us), flush: 500 * us},
	}, {
		name: "and not for ten", longest: 500 * us, packets: seconds(11, 20_000),
		answers: map[int]*inband.Answer{0: answered(500 * us)},
		want:    wish{attached: true},
	}, {
		name: "the host takes its window back", longest: 500 * us, packets: seconds(5, 20_000),
		answers: map[int]*inband.Answer{0: answered(500 * us), 4: answered(0)},
		want:    wish{attached: true},
	}, {
		name: "nothing allowed for a minute", longest: 500 * us, packets: seconds(70, 20_000),
		answers: map[int]*inband.Answer{0: answered(500 * us)},
	}, {
		name: "nor for less", longest: 500 * us, packets: seconds(69, 20_000),
		answers: map[int]*inband.Answer{0: answered(500 * us)},
		want:    wish{attached: true},
	}, {
		name: "an answer without a rate", longest: 500 * us, packets: seconds(3, 20_000),
		answers: map[int]*inband.Answer{1: {Window: 500 * us}},
	}, {
		name: "an answer of an absurd rate", longest: 500 * us, packets: seconds(3, 20_000),
		answers: map[int]*inband.Answer{1: {Window: 500 * us, OnPackets: 4e9}},
	}, {
		name: "the first round knows no rate", longest: 500 * us, packets: seconds(1, 20_000), answers: always(500 * us),
		want: wish{attached: true, transmit: holds(500 * us)},
	}} {
		if _, got := watch(test.longest, test.packets, test.answers); !got.equal(test.want) {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}

func (w wish) equal(o wish) bool {
	return w.attached == o.attached && w.flush == o.flush && w.transmit.Equal(o.transmit)
}

func TestCountersThatStartAgain(t *testing.T) {
	m, _ := watch(500*us, seconds(2, 20_000), always(500*us))
	m, w := decide(m, observation{now: m.countedAt + time.Second, received: 5, answer: answered(500 * us)}, 500*us)
	if m.rate != 0 || w.flush == 0 {
		t.Errorf("rate %v, flush %v; want 0, and the hold time to go on", m.rate, w.flush)
	}
	if again, _ := decide(m, observation{now: m.countedAt, received: 1e12}, 500*us); again.rate != m.rate {
		t.Errorf("a round of no time made the rate %v", again.rate)
	}
}

func TestStatusForPeople(t *testing.T) {
	s := Status{Running: true, ToleratedMicroseconds: 500, Cards: []CardStatus{{
		Card: "eth0", WindowMicroseconds: 250, OnPacketsPerSecond: 10_000, Deferring: true,
		Receive: Half{State: InForce}, Transmit: Half{State: Unsupported, Message: "no fq"},
	}}}
	const want = `The guest tolerates windows of 500 us.
eth0: window 250 us, from 10000 packets/s on
  receive:  InForce, deferring now
  transmit: Unsupported: no fq
`
	if diff := cmp.Diff(want, s.String()); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}
