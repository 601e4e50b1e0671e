package trials

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/ledger"
	"github.com/joulevirt/joulevirt/internal/model"
)

// Slot is what a unit drew and did in the judged part of one slot.
type Slot struct {
	Number int64 `json:"n"`
	// Of is a hash of the nodes and meters: only slots with the same are compared.
	Of uint32 `json:"of,omitempty"`
	// Watts, and bytes per second that VMs received and sent. Of a HybridWorkload Received are the bytes that
	// clients were served by VMs and gateways, which it is judged by instead, and Sent is 0.
	Watts    float64 `json:"w"`
	Received float64 `json:"r"`
	Sent     float64 `json:"s"`
	// Levers that schedules switched: OneIn of the schedule while on, and its negative while off.
	Levers map[v1alpha1.Lever]int `json:"l,omitempty"`
}

// digits of what is remembered: meters are not better.
const digits = 5

func rounded(x float64) float64 {
	short, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', digits, 64), 64)
	if err != nil {
		return 0
	}
	return short
}

// isOn reports whether a lever acted. One that no schedule switched was the same in all slots.
func (s *Slot) isOn(lever v1alpha1.Lever) bool { return s.Levers[lever] > 0 }

// oneIn is the stratum of the schedule that switched a lever. 0: none did.
func (s *Slot) oneIn(lever v1alpha1.Lever) int { return max(s.Levers[lever], -s.Levers[lever]) }

// Stratum is what one hold-back of a lever shows, for the ledger.
type Stratum struct {
	Lever v1alpha1.Lever
	ledger.Comparison
	// Before is the unit's stratum before. Nil: it is the first.
	Before *ledger.Comparison
	// delivered and sent are logarithms of bytes, the latter for the same demand.
	delivered, sent float64
	works           bool
}

// past is what is remembered of a stratum.
type past struct {
	ledger.Comparison
	Delivered float64 `json:"b"`
	Sent      float64 `json:"s"`
}

func (p *past) with(log float64) *ledger.Comparison {
	if p == nil {
		return nil
	}
	return &ledger.Comparison{Joules: p.Joules, Log: log}
}

// cell is the number of neighbouring slots within which an off slot is compared.
const cell = 5

// stratumOf compares the off slot of a lever's stratum with its neighbours. False: too little of
// it was measured.
func (u *unit) stratumOf(lever v1alpha1.Lever, oneIn int, stratum int64) (out Stratum, ok bool) {
	s := model.NewSchedule(lever, "", oneIn)
	var off *Slot
	var on []*Slot
	for i := range u.Slots {
		slot := &u.Slots[i]
		if s.Stratum(slot.Number) != stratum || slot.oneIn(lever) != oneIn {
			continue
		}
		if slot.isOn(lever) {
			on = append(on, slot)
			out.Joules += slot.Watts * s.Slot.Seconds()
		} else {
			off = slot
		}
	}
	if off == nil {
		return out, false
	}
	cellOf := func(slot *Slot) int64 { return (slot.Number - stratum*int64(oneIn)) / cell }
	near := slices.DeleteFunc(on, func(slot *Slot) bool { return cellOf(slot) != cellOf(off) || slot.Of != off.Of })
	if len(near) == 0 {
		return out, false
	}
	floor := u.floor()
	out.Lever, out.works = lever, floor > 0
	for _, slot := range near {
		r := compare(off, slot, floor)
		out.Log += (r.joules - u.slope(u.XY)*r.demand) / float64(len(near))
		out.delivered += r.delivered / float64(len(near))
		out.sent += (r.sent - u.slope(u.XS)*r.demand) / float64(len(near))
	}
	return out, true
}

// compare returns logarithms of what one slot had over another.
func compare(from, to *Slot, floor float64) row {
	log := func(x, y float64) float64 {
		if floor == 0 {
			return 0
		}
		return math.Log((y + floor) / (x + floor))
	}
	return row{
		joules: math.Log(to.Watts / from.Watts), demand: log(from.Received, to.Received),
		delivered: log(from.Received+from.Sent, to.Received+to.Sent), sent: log(from.Sent, to.Sent), works: floor > 0,
	}
}

// floor is added to bytes, so that a slot without traffic has a logarithm: 1 % of the median.
func (u *unit) floor() float64 {
	all := make([]float64, len(u.Slots))
	for i := range u.Slots {
		all[i] = u.Slots[i].Received
	}
	slices.Sort(all)
	return 0.01 * all[len(all)/2]
}

// forget is what is left of the slope's sums after each slot: they are of about a day.
const forget = 1 - 1./100

// slope of a logarithm by that of the demand, of slots without a change of levers.
func (u *unit) slope(moment float64) float64 {
	if !(u.XX > 0) {
		return 0
	}
	return min(max(moment/u.XX, leastSlope), mostSlope)
}

// record appends a slot, and returns the strata that it ends.
func (u *unit) record(slot Slot) []Stratum {
	if !(slot.Watts > 0) || !(slot.Received >= 0) || !(slot.Sent >= 0) {
		return nil
	}
	slot.Watts, slot.Received, slot.Sent = rounded(slot.Watts), rounded(slot.Received), rounded(slot.Sent)
	if len(u.Slots) == 0 {
		u.Slots = append(u.Slots, slot)
		return nil
	}
	last := u.Slots[len(u.Slots)-1]
	if slot.Number <= last.Number {
		return nil
	}
	var strata []Stratum
	for _, lever := range u.levers {
		oneIn := last.oneIn(lever)
		if oneIn <= model.TrialOneIn {
			continue
		}
		if s := model.NewSchedule(lever, "", oneIn); s.Stratum(slot.Number) != s.Stratum(last.Number) {
			if stratum, ok := u.stratumOf(lever, oneIn, s.Stratum(last.Number)); ok {
				strata = append(strata, stratum)
			}
		}
	}
	u.Slots = append(u.Slots, slot)
	u.learnSlope(&last, &slot)
	return strata
}

// learnSlope adds two slots in which levers that are held back were on.
func (u *unit) learnSlope(last, slot *Slot) {
	if slot.Number != last.Number+1 || slot.Of != last.Of {
		return
	}
	for _, lever := range u.levers {
		held := max(slot.oneIn(lever), last.oneIn(lever)) > model.TrialOneIn
		if held && slot.isOn(lever) != last.isOn(lever) {
			return
		}
	}
	r := compare(last, slot, u.floor())
	u.XX = forget*u.XX + r.demand*r.demand
	u.XY = forget*u.XY + r.demand*r.joules
	u.XS = forget*u.XS + r.demand*r.sent
}

// trim drops slots before a number, but for the last stratum.
func (u *unit) trim(before int64) {
	keep := max(0, len(u.Slots)-u.longest())
	at, _ := slices.BinarySearchFunc(u.Slots, before, func(s Slot, n int64) int { return int(max(-1, min(1, s.Number-n))) })
	u.Slots = slices.Delete(u.Slots, 0, min(keep, at))
}

// longest stratum of the unit's hold-backs, as of the last slot.
func (u *unit) longest() int {
	longest := 2 * cell
	if len(u.Slots) > 0 {
		for lever := range u.Slots[len(u.Slots)-1].Levers {
			longest = max(longest, u.Slots[len(u.Slots)-1].oneIn(lever)+1)
		}
	}
	return longest
}

// rows of a unit's pairs of slots, from a slot on, in which a lever was on trial. levers are the
// columns of the signs.
func (u *unit) rows(name string, trial v1alpha1.Lever, from int64, levers []v1alpha1.Lever) []row {
	var rows []row
	floor := 0.0
	if len(u.Slots) > 0 {
		floor = u.floor()
	}
	for i := 1; i < len(u.Slots); i++ {
		first, second := &u.Slots[i-1], &u.Slots[i]
		isPair := first.Number >= from && first.Number%2 == 0 && second.Number == first.Number+1 && first.Of == second.Of &&
			first.oneIn(trial) == model.TrialOneIn && first.isOn(trial) != second.isOn(trial)
		r := compare(first, second, floor)
		for _, lever := range levers {
			if first.oneIn(lever) != second.oneIn(lever) {
				isPair = false // its schedule came or went between
			}
			r.signs = append(r.signs, sign(second.isOn(lever))-sign(first.isOn(lever)))
		}
		if r.unit = name; isPair {
			rows = append(rows, r)
		}
	}
	return rows
}

func sign(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

// hold is what a lever's hold-backs showed since it was adopted, in this month.
type hold struct {
	Month     ledger.Month `json:"month"`
	Joules    ledger.Sum   `json:"joules"`
	Delivered ledger.Sum   `json:"delivered"`
	Sent      ledger.Sum   `json:"sent"`
	// Units are the joules by unit.
	Units map[string]*ledger.Sum `json:"units,omitempty"`
}

func (h *hold) add(name string, s *Stratum, before *past, now time.Time) {
	if month := ledger.MonthOf(now); h.Month != month {
		*h = hold{Month: month}
	}
	if h.Units == nil {
		h.Units = map[string]*ledger.Sum{}
	}
	if h.Units[name] == nil {
		h.Units[name] = &ledger.Sum{}
	}
	h.Joules.Add(s.Comparison, s.Before)
	h.Units[name].Add(s.Comparison, s.Before)
	if s.works && before != nil {
		h.Delivered.Add(ledger.Comparison{Joules: s.Joules, Log: s.delivered}, before.with(before.Delivered))
		h.Sent.Add(ledger.Comparison{Joules: s.Joules, Log: s.sent}, before.with(before.Sent))
	}
}
