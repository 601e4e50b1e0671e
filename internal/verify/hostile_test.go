package verify_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/test/trials"
)

// TestHostileOutcomes never adopt a lever, although it saves 5 % in what is left.
func TestHostileOutcomes(t *testing.T) {
	all := func(verify.Outcome) bool { return true }
	for _, c := range []struct {
		name   string
		which  func(verify.Outcome) bool
		change func(*verify.Outcome)
	}{
		{"joules that are no number", isOn, func(o *verify.Outcome) { o.Joules = units.Joules(math.NaN()) }},
		{"joules below 0", all, func(o *verify.Outcome) { o.Joules = -o.Joules }},
		{"no joules with the lever", isOn, func(o *verify.Outcome) { o.Joules = 0 }},
		{"hardly any joules with the lever", isOn, func(o *verify.Outcome) { o.Joules = math.SmallestNonzeroFloat64 }},
		{"endless joules without it", func(o verify.Outcome) bool { return !o.On }, func(o *verify.Outcome) { o.Joules = units.Joules(math.Inf(1)) }},
		{"huge joules without it", func(o verify.Outcome) bool { return !o.On }, func(o *verify.Outcome) { o.Joules = 1e300 }},
		{"one huge block without it", func(o verify.Outcome) bool { return !o.On && o.Block < 2 }, func(o *verify.Outcome) { o.Joules = 1e300 }},
		{"no seconds", all, func(o *verify.Outcome) { o.Seconds = 0 }},
		{"work that is no number", all, func(o *verify.Outcome) { o.Work = math.NaN() }},
		{"work below 0 with the lever", isOn, func(o *verify.Outcome) { o.Work = -1 }},
		{"no work with the lever", isOn, func(o *verify.Outcome) { o.Work = 0 }},
		{"huge work without it", func(o verify.Outcome) bool { return !o.On }, func(o *verify.Outcome) { o.Work = 1e300 }},
		{"all blocks are one", all, func(o *verify.Outcome) { o.Block = 0 }},
		{"blocks below 0", all, func(o *verify.Outcome) { o.Block -= 1 << 40 }},
		{"blocks far off", all, func(o *verify.Outcome) { o.Block = math.MaxInt - o.Block }},
		{"always on", all, func(o *verify.Outcome) { o.On = true }},
		{"always off", all, func(o *verify.Outcome) { o.On = false }},
	} {
		t.Run(c.name, func(t *testing.T) {
			trial := quietTrial(t, trials.Truth{Effect: -0.05})
			changed(trial, c.which, c.change)
			v := verify.Judge(trial)
			if v.Decision == verify.Adopted {
				t.Errorf("adopted: %s", v.Message)
			}
			isSane(t, v)
		})
	}
	t.Run("each block twice, the second as saving more", func(t *testing.T) {
		trial := quietTrial(t, trials.Truth{Effect: -0.05})
		for _, o := range trial.Outcomes {
			o.Joules /= 2
			trial.Outcomes = append(trial.Outcomes, o)
		}
		if v := verify.Judge(trial); v.Decision == verify.Adopted {
			t.Errorf("adopted: %s", v.Message)
		}
	})
	t.Run("a guard that is told of once of twice", func(t *testing.T) {
		trial := quietTrial(t, trials.Truth{Effect: -0.05})
		for _, o := range trial.Outcomes {
			if o.On && o.Block < 10 {
				o.Guarded = true
				trial.Outcomes = append(trial.Outcomes, o)
			}
		}
		if v := verify.Judge(trial); v.Why != verify.WhyGuarded {
			t.Errorf("%s, %s: %s", v.Decision, v.Why, v.Message)
		}
	})
}

// isSane fails for verdicts that cannot be put into words or figures.
func isSane(t *testing.T, v verify.Verdict) {
	t.Helper()
	if v.Message == "" || math.IsNaN(v.Log) || math.IsInf(v.Log, 0) || !(v.Low <= v.Log && v.Log <= v.High) {
		t.Errorf("verdict %+v", v)
	}
	if v.Decision == verify.Adopted && !(v.High < 0 && v.Effect.Pairs >= 4 && v.Log > -math.Ln2 && v.Work.IsKnown()) {
		t.Errorf("adopted by %+v", v)
	}
	if v.CoolDown < 0 || v.Needed < 0 {
		t.Errorf("cool-down %v, needed %v", v.CoolDown, v.Needed)
	}
}

// FuzzJudge tells of blocks whatever comes: eight bytes choose a block of a good trial and
// what is changed of it to what.
func FuzzJudge(f *testing.F) {
	f.Add([]byte("00000000"), uint8(8), uint8(64), 0.95, 0.005, 0.05)
	f.Add([]byte("\x10\x00\x01\x7f\xf0\x00\x00\x00\x11\x01\x02\xff\xf8\x00\x00\x01"), uint8(4), uint8(16), 0.8, 0.0, 0.3)
	f.Fuzz(func(t *testing.T, data []byte, every, pairs uint8, confidence, least, margin float64) {
		p := plan()
		p.Every, p.Pairs, p.Confidence, p.Least, p.Margin = int(every), int(pairs), confidence, least, margin
		if p.Check() != nil {
			p = plan()
		}
		world := quiet()
		trial, err := world.Trial(p, 1, trials.Truth{Effect: -0.05}, trials.Truth{Effect: -0.04})
		if err != nil {
			t.Fatal(err)
		}
		for ; len(data) >= 8; data = data[8:] {
			value := math.Float64frombits(uint64(binary.BigEndian.Uint32(data[4:])) << 32)
			o := &trial.Outcomes[int(data[0])%len(trial.Outcomes)]
			switch data[1] % 10 {
			case 0:
				o.Joules = units.Joules(value)
			case 1:
				o.Work = value
			case 2:
				o.Seconds = value
			case 3:
				o.Block = int(int32(binary.BigEndian.Uint32(data[4:])))
			case 4:
				o.On = !o.On
			case 5:
				o.Guarded = true
			case 6:
				o.Before = verify.Stretch{Seconds: 1, Joules: units.Joules(value), Work: value}
			case 7:
				trial.Units = int(int32(binary.BigEndian.Uint32(data[4:])))
			case 8:
				o.Unit = string(data[4:8])
			case 9:
				trial.Outcomes = append(trial.Outcomes, *o)
			}
		}
		isSane(t, verify.Judge(trial))
		held := verify.JudgeHoldBack(trial.Outcomes, int(every))
		if e := held.Effect; e.Pairs > 0 && !e.IsKnown() {
			t.Errorf("hold-back %+v", held)
		}
	})
}
