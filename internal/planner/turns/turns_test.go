package turns

import (
	"fmt"
	"strings"
	"testing"
	"time"

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
		word := d.Reason
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
		vms  []VM
		want string
	}{
		"nobody":                       {nil, ""},
		"one alone":                    {[]VM{sends("a", 100)}, "a:NoOtherSender"},
		"two alike":                    {[]VM{sends("a", 100), sends("b", 100)}, "a:0s+4s/8s b:4s+4s/8s"},
		"by what they send":            {[]VM{sends("a", 300), sends("b", 100)}, "a:0s+5.92s/8s b:5.92s+2.08s/8s"},
		"one sends little":             {[]VM{sends("a", 100), sends("b", 0.9), sends("c", 100)}, "a:0s+4s/8s b:SendsLittle c:4s+4s/8s"},
		"one is not known":             {[]VM{sends("a", 100), sends("b", 1).unheard(), sends("c", 100)}, "a:0s+4s/8s b:Learning c:4s+4s/8s"},
		"ceilings far above":           {[]VM{sends("a", 30).ceiling(10000), sends("b", 30).ceiling(10000)}, "a:0s+4s/8s b:4s+4s/8s"},
		"ceilings just enough":         {[]VM{sends("a", 50).ceiling(100), sends("b", 50).ceiling(100)}, "a:NoRoom b:NoRoom"},
		"the least delay":              {[]VM{sends("a", 100), sends("b", 100).delay(5 * s)}, "a:0s+1s/2s b:1s+1s/2s"},
		"overlapping turns are mended": {[]VM{sends("a", 100).at(8*s, 0, 25), sends("b", 100).at(8*s, 19, 25)}, "a:0s+4s/8s b:4s+4s/8s"},
		"turns off the grid are mended": {[]VM{sends("a", 100).at(8*s+50*time.Millisecond, 0, 20), sends("b", 100).at(8*s, 25, 20)},
			"a:4s+4s/8s b:0s+4s/8s"},
		"a newcomer takes of all": {[]VM{sends("a", 100).at(8*s, 0, 25), sends("b", 100).at(8*s, 25, 25), sends("c", 100)},
			"a:0s+2.72s/8s b:2.72s+2.72s/8s c:5.44s+2.56s/8s"},
		"a newcomer that does not fit waits": {[]VM{sends("a", 50).ceiling(150).at(8*s, 0, 25), sends("b", 50).ceiling(150).at(8*s, 25, 25), sends("c", 50).ceiling(150)},
			"a:0s+4s/8s b:4s+4s/8s c:NoRoom"},
		"the shortest delay":   {[]VM{sends("a", 100).delay(s), sends("b", 100)}, "a:0s+250ms/500ms b:250ms+250ms/500ms"},
		"no delay is so short": {[]VM{sends("a", 100).delay(s - 1), sends("b", 100)}, "a:NoRoom b:NoOtherSender"},

		"small changes change nothing": {[]VM{sends("a", 120).at(8*s, 0, 25), sends("b", 90).at(8*s, 25, 25)}, "a:0s+4s/8s b:4s+4s/8s"},
		"large changes do":             {[]VM{sends("a", 300).at(8*s, 25, 25), sends("b", 100).at(8*s, 0, 25)}, "a:2.08s+5.92s/8s b:0s+2.08s/8s"},
		"nothing heard changes none":   {[]VM{sends("a", 1).unheard().at(8*s, 0, 25), sends("b", 100).at(8*s, 25, 25)}, "a:0s+4s/8s b:4s+4s/8s"},
		"a sender down to a trickle":   {[]VM{sends("a", 100).at(8*s, 0, 25), sends("b", 0.3).at(8*s, 25, 25)}, "a:0s+7.84s/8s b:7.84s+160ms/8s"},
		"no sender below the trickle":  {[]VM{sends("a", 100).at(8*s, 0, 25), sends("b", 0.2).at(8*s, 25, 25)}, "a:NoOtherSender b:SendsLittle"},
		"a delay that became shorter":  {[]VM{sends("a", 100).at(8*s, 0, 25).delay(5 * s), sends("b", 100).at(8*s, 25, 25)}, "a:0s+1s/2s b:1s+1s/2s"},
		"a shorter period is kept":     {[]VM{sends("a", 100).at(4*s, 0, 25), sends("b", 100).at(4*s, 25, 25)}, "a:0s+2s/4s b:2s+2s/4s"},
		"a much shorter one is not":    {[]VM{sends("a", 100).at(2*s, 0, 25), sends("b", 100).at(2*s, 25, 25)}, "a:0s+4s/8s b:4s+4s/8s"},
	} {
		got := Plan(tc.vms)
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
