package nodevm

import (
	"fmt"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/test/nodevm/wire"
)

const (
	// freeStreams of each kind that nothing bounds, and how long each is.
	freeStreams = 4
	freeTime    = 500 * time.Millisecond
	// leastPairs is the least number of pairs in which what is no slower is not below, of
	// 4 times 4: fewer happen by chance in one of 20 cases (Mann and Whitney's test).
	leastPairs = 2
	// boundedTime is that of a stream that its sender bounds, once its packets are held;
	// boundedTries of each kind are made at most in each of two turns.
	boundedTime  = 800 * time.Millisecond
	boundedTries = 3
	// pacedBytes is what such a stream sends in a second: about as many packets as the loads.
	pacedBytes = 7_500_000
	pacedRate  = pacedBytes * 8 / 1e6
	// segmentBytes is the most that a packet of one brings.
	segmentBytes = 1448
	// kept is what is left of throughput with packets held, at least.
	kept = 0.95
)

// streams are the Mbit/s of those with, or without.
type streams struct{ free, bounded []float64 }

// testTCP compares streams with and without the plan, which comes and goes.
func (s *scene) testTCP() error {
	with, without := &streams{}, &streams{}
	// Half of those with at either end: what drifts is in both.
	for _, held := range []bool{true, false, false, true} {
		kind := without
		if held {
			kind = with
			s.hold()
		} else {
			s.release()
		}
		if err := s.bounded(kind, held); err != nil {
			return err
		}
		for range freeStreams / 2 {
			streamed, err := s.stream(wire.Stream{Time: freeTime})
			if err != nil {
				return err
			}
			kind.free = append(kind.free, mbits(streamed))
		}
	}
	s.Logf("Mbit/s with %.0f of %.0f, without %.0f of %.0f", Median(with.free), with.free, Median(without.free), without.free)
	s.Logf("bounded to %.0f Mbit/s: with %.1f, without %.1f", pacedRate, with.bounded, without.bounded)
	best := slices.Max(without.bounded)
	if best < kept*pacedRate {
		return fmt.Errorf("%w: streams bounded to %.0f Mbit/s have %.1f with nothing held", ErrTooBusy, pacedRate, without.bounded)
	}
	if len(with.bounded) == 0 {
		return fmt.Errorf("%w: no stream had all its segments held", ErrTooBusy)
	}
	if held := slices.Max(with.bounded); held < kept*best {
		s.Errorf("bounded streams keep %.3f of their throughput with packets held", held/best)
	}
	if pairs := pairsKept(with.free, without.free); pairs < leastPairs {
		s.Errorf("only %d of %d pairs of TCP streams are within 5 %% with packets held", pairs, freeStreams*freeStreams)
	}
	return nil
}

// bounded makes streams that their sender bounds, until one was as fast as that lets it. What
// disturbs the machine makes them slower, and none is faster: the best tells what can be had.
// With packets held, only streams count whose segments were.
func (s *scene) bounded(kind *streams, held bool) error {
	s.Helper()
	for range boundedTries {
		if len(kind.bounded) > 0 && slices.Max(kind.bounded) >= kept*pacedRate {
			return nil
		}
		before, err := s.node.decided(s.Context())
		if err != nil {
			return err
		}
		streamed, err := s.stream(wire.Stream{Time: boundedTime, Settle: settle, BytesPerSecond: pacedBytes})
		if err != nil {
			return err
		}
		after, err := s.node.decided(s.Context())
		if err != nil {
			return err
		}
		count, least := after.Held-before.Held, streamed.Bytes/segmentBytes
		s.Logf("bounded: %.1f Mbit/s, %d segments sent again, %d held of %d", mbits(streamed), streamed.Retransmits, count, least)
		if held && count < least {
			s.Logf("BUSY: only %d segments were held: some came too slowly, and holding began late", count)
			continue
		}
		kind.bounded = append(kind.bounded, mbits(streamed))
	}
	return nil
}

func mbits(streamed wire.Streamed) float64 {
	return float64(streamed.Bytes) * 8 / streamed.Seconds / 1e6
}

// stream makes one to the guest.
func (s *scene) stream(of wire.Stream) (streamed wire.Streamed, err error) {
	of.Address = fmt.Sprintf("%s:%d", wire.GuestAddress, wire.DrainPort)
	err = s.try("a stream", func() error {
		return s.node.Call(s.Context(), "Node.Stream", of, &streamed)
	})
	return streamed, err
}

// pairsKept counts pairs of which the one with packets held keeps what the other has. A stream
// that nothing bounds is at times half as fast as the next one here: what is looked for is
// that those with packets held are not all in all slower.
func pairsKept(with, without []float64) (pairs int) {
	for _, w := range with {
		for _, o := range without {
			if w >= kept*o {
				pairs++
			}
		}
	}
	return pairs
}
