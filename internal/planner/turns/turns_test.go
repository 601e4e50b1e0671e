package turns

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

const mbit units.BitsPerSecond = 1e6

// sends is a VM that sends so many Mbit/s and may be held for a minute.
func sends(pod string, rate float64) VM {
	sent := units.BitsPerSecond(rate) * mbit
	return VM{PodUID: pod, Sent: &sent, MaxDelay: time.Minute}
}

func (v VM) ceiling(rate float64) VM {
	v.Ceiling = units.BitsPerSecond(rate) * mbit
	return v
}

func (v VM) delay(d time.Duration) VM {
	v.MaxDelay = d
	return v
}

func (v VM) unheard() VM {
	v.Sent = nil
	return v
}

// at gives the VM a current turn, in slots of its period.
func (v VM) at(period time.Duration, offset, length int) VM {
	slot := period / slots
	v.Current = &model.Turn{Period: period, Offset: time.Duration(offset) * slot, Length: time.Duration(length) * slot, Trickle: Trickle}
	return v
}

// after gives the VMs the turns of a plan.
func after(vms []VM, decisions []Decision) []VM {
	out := append([]VM(nil), vms...)
	for i := range out {
		out[i].Current = decisions[i].Turn
	}
	return out
}

// outcome is a plan in short: offset+length/period of each turn, or the reason
// for none.
func outcome(vms []VM, decisions []Decision) string {
	var words []string
	for i, d := range decisions {
		word := string(d.Reason)
		if d.Turn != nil {
			word = fmt.Sprintf("%v+%v/%v", d.Turn.Offset, d.Turn.Length, d.Turn.Period)
		}
		words = append(words, vms[i].PodUID+":"+word)
	}
	return strings.Join(words, " ")
}

func TestPlan(t *testing.T) {
	const s = time.Second
	for name, tc := range map[string]struct {
		uplink float64
		vms    []VM
		want   string
	}{
		"nobody":               {0, nil, ""},
		"one alone":            {0, []VM{sends("a", 100)}, "a:NoOtherSender"},
		"two alike":            {0, []VM{sends("a", 100), sends("b", 100)}, "a:0s+4s/8s b:4s+4s/8s"},
		"by what they send":    {0, []VM{sends("a", 300), sends("b", 100)}, "a:0s+5.92s/8s b:5.92s+2.08s/8s"},
		"known uplink":         {1000, []VM{sends("a", 100), sends("b", 200)}, "a:0s+1.12s/8s b:1.12s+2.08s/8s"},
		"ceilings count":       {1000, []VM{sends("a", 100).ceiling(200), sends("b", 100)}, "a:0s+5.12s/8s b:5.12s+1.12s/8s"},
		"no room at ceilings":  {1000, []VM{sends("a", 100).ceiling(200), sends("b", 100).ceiling(200)}, "a:NoRoom b:NoRoom"},
		"the uplink is full":   {1000, []VM{sends("a", 450), sends("b", 450)}, "a:NoRoom b:NoRoom"},
		"the largest is left":  {1000, []VM{sends("a", 100), sends("b", 700), sends("c", 100)}, "a:0s+1.12s/8s b:NoRoom c:1.12s+1.12s/8s"},
		"one sends little":     {0, []VM{sends("a", 100), sends("b", 0.9), sends("c", 100)}, "a:0s+4s/8s b:SendsLittle c:4s+4s/8s"},
		"one is not known":     {0, []VM{sends("a", 100), sends("b", 1).unheard(), sends("c", 100)}, "a:0s+4s/8s b:TrafficUnknown c:4s+4s/8s"},
		"ceilings far above":   {0, []VM{sends("a", 30).ceiling(10000), sends("b", 30).ceiling(10000)}, "a:0s+4s/8s b:4s+4s/8s"},
		"ceilings just enough": {0, []VM{sends("a", 50).ceiling(100), sends("b", 50).ceiling(100)}, "a:NoRoom b:NoRoom"},
		"the least delay":      {0, []VM{sends("a", 100), sends("b", 100).delay(5 * s)}, "a:0s+1s/2s b:1s+1s/2s"},
		"the shortest delay":   {0, []VM{sends("a", 100).delay(s), sends("b", 100)}, "a:0s+250ms/500ms b:250ms+250ms/500ms"},
		"no delay is so short": {0, []VM{sends("a", 100).delay(s - 1), sends("b", 100)}, "a:NoRoom b:NoOtherSender"},

		"small changes change nothing": {0, []VM{sends("a", 120).at(8*s, 0, 25), sends("b", 90).at(8*s, 25, 25)}, "a:0s+4s/8s b:4s+4s/8s"},
		"large changes do":             {0, []VM{sends("a", 300).at(8*s, 25, 25), sends("b", 100).at(8*s, 0, 25)}, "a:2.08s+5.92s/8s b:0s+2.08s/8s"},
		"a turn that is full":          {1000, []VM{sends("a", 240).at(8*s, 20, 10), sends("b", 100).at(8*s, 0, 20)}, "a:3.2s+2.4s/8s b:0s+3.2s/8s"},
		"a turn that is nearly full":   {1000, []VM{sends("a", 180).at(8*s, 20, 10), sends("b", 100).at(8*s, 0, 20)}, "a:3.2s+1.6s/8s b:0s+3.2s/8s"},
		"a full turn moves":            {1000, []VM{sends("a", 240).at(8*s, 0, 10), sends("b", 100).at(8*s, 10, 20)}, "a:4.8s+2.4s/8s b:1.6s+3.2s/8s"},
		"a full turn finds no room":    {100, []VM{sends("a", 70).at(8*s, 0, 30), sends("b", 20).at(8*s, 30, 20)}, "a:NoRoom b:NoRoom"},
		"a newcomer takes what is free": {1000, []VM{sends("a", 100).at(8*s, 10, 20), sends("b", 100)},
			"a:1.6s+3.2s/8s b:0s+1.12s/8s"},
		"a newcomer that does not fit waits": {1000, []VM{sends("a", 300).at(8*s, 0, 20), sends("b", 300).at(8*s, 20, 20), sends("c", 300)},
			"a:0s+3.2s/8s b:3.2s+3.2s/8s c:NoRoom"},
		"turns that are too long yield": {1000, []VM{sends("a", 100).at(8*s, 25, 25), sends("b", 100).at(8*s, 0, 25), sends("c", 100)},
			"a:1.12s+1.12s/8s b:0s+1.12s/8s c:2.24s+1.12s/8s"},
		"one that left leaves a gap":  {1000, []VM{sends("a", 100).at(8*s, 0, 10), sends("c", 100).at(8*s, 25, 10)}, "a:0s+1.6s/8s c:4s+1.6s/8s"},
		"the last one left stops":     {1000, []VM{sends("a", 100).at(8*s, 0, 10)}, "a:NoOtherSender"},
		"nothing heard changes none":  {0, []VM{sends("a", 1).unheard().at(8*s, 0, 25), sends("b", 100).at(8*s, 25, 25)}, "a:0s+4s/8s b:4s+4s/8s"},
		"a sender down to a trickle":  {0, []VM{sends("a", 100).at(8*s, 0, 25), sends("b", 0.3).at(8*s, 25, 25)}, "a:0s+7.84s/8s b:7.84s+160ms/8s"},
		"no sender below the trickle": {0, []VM{sends("a", 100).at(8*s, 0, 25), sends("b", 0.2).at(8*s, 25, 25)}, "a:NoOtherSender b:SendsLittle"},
		"a delay that became shorter": {0, []VM{sends("a", 100).at(8*s, 0, 25).delay(5 * s), sends("b", 100).at(8*s, 25, 25)}, "a:0s+1s/2s b:1s+1s/2s"},
		"a shorter period is kept":    {0, []VM{sends("a", 100).at(4*s, 0, 25), sends("b", 100).at(4*s, 25, 25)}, "a:0s+2s/4s b:2s+2s/4s"},
		"a much shorter one is not":   {0, []VM{sends("a", 100).at(2*s, 0, 25), sends("b", 100).at(2*s, 25, 25)}, "a:0s+4s/8s b:4s+4s/8s"},
		"overlapping turns are mended": {1000, []VM{sends("a", 100).at(8*s, 0, 20), sends("b", 100).at(8*s, 19, 20)},
			"a:0s+3.2s/8s b:3.2s+1.12s/8s"},
		"turns off the grid are mended": {1000, []VM{sends("a", 100).at(8*s+50*time.Millisecond, 0, 20), sends("b", 100).at(8*s, 25, 20)},
			"a:0s+1.12s/8s b:4s+3.2s/8s"},
	} {
		got := Plan(units.BitsPerSecond(tc.uplink)*mbit, tc.vms)
		if text := outcome(tc.vms, got); text != tc.want {
			t.Errorf("%s:\n     %s\nwant %s", name, text, tc.want)
		}
	}
}

func TestAllowed(t *testing.T) {
	turn := model.Turn{Period: 8 * time.Second, Offset: 4 * time.Second, Length: 4 * time.Second, Trickle: Trickle}
	for name, tc := range map[string]struct {
		change   func(*model.Turn)
		maxDelay time.Duration
		want     bool
	}{
		"twice the period":        {func(*model.Turn) {}, 16 * time.Second, true},
		"less":                    {func(*model.Turn) {}, 16*time.Second - 1, false},
		"beyond the period":       {func(t *model.Turn) { t.Offset += time.Millisecond }, time.Hour, false},
		"too little between":      {func(t *model.Turn) { t.Trickle-- }, time.Hour, false},
		"less than a millisecond": {func(t *model.Turn) { t.Offset-- }, time.Hour, false},
	} {
		turn := turn
		tc.change(&turn)
		if got := Allowed(turn, tc.maxDelay); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A plan in force stays as it is while little changes, and VMs that come to it
// and go from it move no other where there is room.
func TestNewcomersMoveNobody(t *testing.T) {
	vms := []VM{sends("b", 100), sends("d", 50), sends("f", 80)}
	first := Plan(1000*mbit, vms)
	held := after(vms, first)
	more := append(after(vms, first), sends("a", 100), sends("c", 100))
	second := Plan(1000*mbit, more)
	if diff := cmp.Diff(first, second[:3]); diff != "" || second[3].Turn == nil || second[4].Turn == nil {
		t.Errorf("VMs came (-was +is):\n%s%v", diff, outcome(more, second))
	}
	fewer := Plan(1000*mbit, held[1:])
	if diff := cmp.Diff(first[1:], fewer); diff != "" {
		t.Errorf("a VM went (-was +is):\n%s", diff)
	}
}
