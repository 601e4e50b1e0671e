package rates

import (
	"fmt"
	"math"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
)

// Bounds of what an agent may say of how packets are held.
const (
	// maxFrame is the largest packet: an IPv6 jumbogram has a length of 32 bits.
	maxFrame = 1 << 32
	// maxSources is every address of IPv4, which is more than any sketch counts.
	maxSources = 1 << 32
)

// validateBuffering refuses windows that there are not: learned costs have them as their
// key, so that made-up ones would fill the memory.
func validateBuffering(b *model.BufferingRates) error {
	if b == nil {
		return nil
	}
	if !isWindow(b.WindowMicroseconds) {
		return fmt.Errorf("%w: buffering.windowMicroseconds is %d, which is neither 0 nor a window", ErrInvalid, b.WindowMicroseconds)
	}
	if !within(b.ActiveShare, 1) {
		return fmt.Errorf("%w: buffering.activeShare is %v, want from 0 to 1", ErrInvalid, b.ActiveShare)
	}
	for _, rate := range []float64{float64(b.PassedPerSecond), float64(b.HeldPerSecond), float64(b.BunchesPerSecond)} {
		if !within(rate, maxRate) {
			return fmt.Errorf("%w: buffering's rates %+v", ErrInvalid, *b)
		}
	}
	if b.DropsPerSecond != nil && !within(float64(*b.DropsPerSecond), maxRate) {
		return fmt.Errorf("%w: buffering.dropsPerSecond is %v", ErrInvalid, *b.DropsPerSecond)
	}
	if g := b.GuestTools; g != nil && (!isMicroseconds(g.ToleratedMicroseconds) || !isMicroseconds(g.TransmitMicroseconds)) {
		return fmt.Errorf("%w: buffering.guestTools %+v", ErrInvalid, *g)
	}
	return validateFlood(b.Flood)
}

func validateFlood(f *model.Flood) error {
	if f == nil {
		return nil
	}
	if !within(float64(f.SegmentsPerSecond), maxRate) || !within(f.MeanBytes, maxFrame) || !within(f.SYNShare, 1) ||
		f.Sources < 0 || f.Sources > maxSources || !within(f.ReplyShare, maxRate) {
		return fmt.Errorf("%w: buffering.flood %+v", ErrInvalid, *f)
	}
	return nil
}

func isWindow(microseconds int) bool {
	return microseconds == 0 || isMicroseconds(microseconds) && model.IsWindow(time.Duration(microseconds)*time.Microsecond)
}

// isMicroseconds takes all that fits a guest's declaration: no guest can have the rates of
// its whole node refused.
func isMicroseconds(n int) bool { return n >= 0 && n <= math.MaxUint32 }
