package datapath

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/joulevirt/joulevirt/internal/datapath/bpf"
	"github.com/joulevirt/joulevirt/internal/model"
)

const (
	bitsPerByte = 8
	// heldBytes bound what waits for a turn: twice what Linux lets one TCP connection have
	// under way (4 MiB). TCP waits seconds for its timer after a loss at the end of a hold.
	heldBytes = 8 << 20
	// What waits for a ceiling is a tenth of a second of it, within limits.
	leastQueue, mostQueue = 256 << 10, 16 << 20
)

// Shaping are the settings of a device whose packets take turns or stay below a ceiling. The
// zero Shaping lets them leave at once.
type Shaping struct{ model.Shaping }

func (Shaping) kind() kind { return shaping }

func (s Shaping) write(config *ebpf.Map) error {
	if err := config.Put(uint32(0), s.raw()); err != nil {
		return fmt.Errorf("configure the program that shapes packets: %w", err)
	}
	return nil
}

// raw are the settings as the program reads them.
func (s Shaping) raw() *bpf.ShapeShaping {
	raw := &bpf.ShapeShaping{}
	waiting := int64(leastQueue)
	if turn := s.Turn; turn != nil {
		raw.Period, raw.Offset, raw.Length = uint64(turn.Period), uint64(turn.Offset%turn.Period), uint64(turn.Length)
		raw.Trickle, raw.TrickleMost = uint64(turn.Trickle), uint64(timeOf(heldBytes, int64(turn.Trickle)))
		waiting = heldBytes
	}
	if ceiling := int64(s.Ceiling); ceiling > 0 {
		waiting = max(waiting, min(mostQueue, ceiling/bitsPerByte/10))
		raw.Ceiling, raw.CeilingMost = uint64(ceiling), uint64(timeOf(waiting, ceiling))
	}
	return raw
}

// timeOf is how long a rate in bit/s takes for so many bytes.
func timeOf(bytes, rate int64) time.Duration {
	return time.Duration(float64(bytes) * bitsPerByte / float64(rate) * float64(time.Second))
}
