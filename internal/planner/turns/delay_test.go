package turns

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// waits runs what arrives in each slot through a queue that is open in the VM's
// turn, and returns how long what waits longest waits, and what is left at the
// end. Whatever arrives in a slot can leave in it.
func waits(turn model.Turn, full units.BitsPerSecond, arrives []float64) (longest time.Duration, left float64) {
	type batch struct {
		at   int
		bits float64
	}
	var queue []batch
	slot := turn.Period / slots
	for i, bits := range arrives {
		if bits > 0 {
			queue = append(queue, batch{i, bits})
		}
		phase := time.Duration(i) * slot % turn.Period
		rate := turn.Trickle
		if phase >= turn.Offset && phase < turn.Offset+turn.Length {
			rate = full
		}
		// A bit more than the slot carries is the arithmetic's.
		for room := float64(rate)*slot.Seconds() + 1e-3; len(queue) > 0 && room > 0; {
			sent := min(room, queue[0].bits)
			room -= sent
			longest = max(longest, time.Duration(i-queue[0].at)*slot)
			if queue[0].bits -= sent; queue[0].bits <= 0 {
				queue = queue[1:]
			}
		}
	}
	for _, l := range queue {
		left += l.bits
	}
	return longest, left
}

// The bounds of docs/design/shaping-and-buffering.md: steady traffic waits for one hold at most,
// and a burst of twice what a turn carries for two periods. All of it goes.
func TestDelayIsBounded(t *testing.T) {
	const periods = 40
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 23))
		vms := randomNode(r)
		decisions := Plan(vms)
		// The node carries a third more than its senders send now.
		uplink := units.BitsPerSecond(0)
		for i, d := range decisions {
			if d.Turn != nil && vms[i].Sent != nil {
				uplink += *vms[i].Sent / outgrownPart
			}
		}
		for i, d := range decisions {
			if d.Turn == nil || vms[i].Sent == nil {
				continue
			}
			full := uplink
			if vms[i].Ceiling > 0 {
				full = min(full, vms[i].Ceiling)
			}
			slot := (d.Turn.Period / slots).Seconds()
			steady := make([]float64, periods*slots)
			for k := range steady[:(periods-2)*slots] {
				steady[k] = float64(*vms[i].Sent) * slot
			}
			hold := d.Turn.Period - d.Turn.Length
			if longest, left := waits(*d.Turn, full, steady); longest > hold || 2*hold > vms[i].MaxDelay || left > 0 {
				t.Fatalf("seed %d: VM %+v with turn %+v: %v of hold %v, %v bit left", seed, vms[i], *d.Turn, longest, hold, left)
			}
			burst := make([]float64, 4*slots)
			burst[r.IntN(slots)] = 2 * float64(full) * d.Turn.Length.Seconds()
			if longest, left := waits(*d.Turn, full, burst); longest > 2*d.Turn.Period || longest > vms[i].MaxDelay || left > 0 {
				t.Fatalf("seed %d: VM %+v with turn %+v: a burst waits %v, %v bit left", seed, vms[i], *d.Turn, longest, left)
			}
		}
	}
}
