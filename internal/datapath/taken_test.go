package datapath

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/sample"
	"github.com/joulevirt/joulevirt/internal/datapath/bpf"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/observe/rates"
)

// FuzzStatsAreTaken has the manager look at what an agent makes of the maps of one tap:
// whatever a guest declares, and whatever an earlier agent left behind, it must not cost
// the node its rates.
func FuzzStatsAreTaken(f *testing.F) {
	words := func(words ...uint64) (out []byte) {
		for _, w := range words {
			out = binary.LittleEndian.AppendUint64(out, w)
		}
		return out
	}
	f.Add(uint64(time.Millisecond), uint64(math.MaxUint32)*1000, uint32(math.MaxUint32), uint64(time.Second), []byte{})
	f.Add(uint64(300*time.Microsecond), uint64(1<<63), uint32(1), uint64(math.MaxUint64), []byte{})
	f.Add(uint64(2*time.Millisecond), uint64(0), uint32(0), uint64(0), words(0, 1<<40, 1, 0, 1<<32, 0, 0, 1<<32))
	f.Add(uint64(math.MaxUint64), uint64(0), uint32(0), uint64(0), words(9, 9, 9, 9, 9, 10, 10, 9))
	f.Fuzz(func(t *testing.T, window, tolerated uint64, transmit uint32, active uint64, evidence []byte) {
		const now = time.Minute
		config := bpf.JvConfig{Window: window, FloodWindow: window}
		guest := bpf.JvGuest{Tolerated: tolerated, TransmitUs: transmit}
		if tolerated > 0 {
			guest.At = uint64(now)
		}
		state := bpf.JvState{SlotEnd: uint64(now), Window: window, Active: active, EvidenceBits: tolerated}
		if len(evidence) > 0 {
			state.Flooded = 1
			var figures [8]uint64
			_, _ = binary.Decode(append(evidence, make([]byte, 64)...), binary.LittleEndian, &figures)
			for i := range figures {
				figures[i] %= 1 << 48 // of one second
			}
			state.Evidence = bpf.JvSums{
				Packets: figures[0], Bytes: figures[1], Segments: figures[2], Arrivals: figures[3],
				Syn: figures[4], ServiceSegments: figures[5], ServiceBytes: figures[6], Replies: figures[7],
			}
		}
		round := func(at time.Duration) *sample.Round {
			stats := statsOf(config, state, guest, true, now+at)
			begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(at)
			return &sample.Round{At: begin, VMs: []sample.VM{{
				VM: discover.VM{Process: host.TaskID{PID: 100, TID: 100, Start: 1}, PodUID: "p"}, At: begin,
				Buffered: []host.BufferSample{{
					Name: "tap0", Window: stats.Window, Passed: stats.Passed, Held: stats.Held, Bunches: stats.Bunches,
					Active: stats.Active, Guest: stats.Guest, Flood: stats.Flood,
				}},
			}}}
		}
		told := sample.Rates("n", round(0), round(time.Second))
		if err := rates.Validate(told, "n"); err != nil {
			t.Errorf("%v: %+v", err, *told.VMs[0].Buffering)
		}
	})
}
