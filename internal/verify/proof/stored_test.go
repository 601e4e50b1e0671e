package proof_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
	"github.com/joulevirt/joulevirt/test/trials"
)

// resummed bytes have the right checksum.
func resummed(stored []byte) []byte {
	if len(stored) < 4 {
		return stored
	}
	body := stored[: len(stored)-4 : len(stored)-4]
	return binary.LittleEndian.AppendUint32(body, crc32.ChecksumIEEE(body))
}

func TestLoadRefuses(t *testing.T) {
	f := oneLever(t, 1, 3, -0.1)
	f.run(2 * time.Hour)
	stored := f.proofs.Save()
	edited := append([]byte{}, stored...)
	edited[len(edited)/2]++
	for name, c := range map[string]struct {
		bytes []byte
		want  string
	}{
		"none": {nil, "are none"}, "other": {[]byte("joulevirt-ledger-2\nxxxxxx"), "another version"},
		"cut": {stored[:len(stored)-9], "checksum"}, "edited": {edited, "checksum"},
		"more": {resummed(append(stored[:len(stored)-4:len(stored)-4], 0, 0, 0, 0, 0)), "cannot be read"},
	} {
		if _, err := proof.Load(c.bytes); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := proof.Load(stored); err != nil {
		t.Error(err)
	}
}

// TestLoadReadsTheThirdForm, which differs by what it has not.
func TestLoadReadsTheThirdForm(t *testing.T) {
	f := oneLever(t, 1, 8, -0.1)
	f.run(12 * time.Hour)
	loaded, err := proof.Load(f.proofs.SaveThird())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(loaded.Save(), f.proofs.Save()) {
		t.Error("what was read is not what was stored")
	}
}

// TestLoadReadsTheFormBefore: what was stored before classes told of clocks is read, with
// clocks that are not known. A unit whose clocks are told of from then on is of another class,
// and its levers are tried anew.
func TestLoadReadsTheFormBefore(t *testing.T) {
	f := oneLever(t, 1, 8, -0.1)
	f.run(12 * time.Hour)
	loaded, err := proof.Load(f.proofs.SaveSecond())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(loaded.Save(), f.proofs.Save()) {
		t.Error("what was read is not what was stored")
	}
	f.proofs = loaded
	f.run(time.Hour)
	if got := f.stances(model.LeverAffinity); got[model.StanceAdopted] != 8 {
		t.Errorf("stances %v, want all as before", got)
	}
	for i := range f.units {
		f.units[i].Class.Clocks = verify.ClocksOf("performance", false)
	}
	f.run(f.step)
	if got := f.stances(model.LeverAffinity); got[model.StanceAwaiting] != 8 {
		t.Errorf("stances %v, want all to be tried anew", got)
	}
	if again, err := proof.Load(f.proofs.Save()); err != nil || again.Was("a-0").Class != f.units[0].Class {
		t.Errorf("stored anew: %v", err)
	}
}

// TestStoredSize is of 1,000 units with three levers, one of which is on trial on a third
// of them, and the others are held back, all with names as clouds give them.
func TestStoredSize(t *testing.T) {
	f := newFleet(t, trials.World{Name: "noise", Work: trials.Noise{SD: 3}, Other: trials.Noise{SD: 0.01}}, 1, map[string]int{"a": 1}, same(0, 0, 0))
	f.units = f.units[:0]
	for n := range 1000 {
		class := verify.Class{CPUModel: "Intel(R) Xeon(R) Gold 6430", Kernel: "6.12", Idle: "C6", Clocks: "schedutil/follows", Workload: "Class" + string(rune('A'+n/48%26))}
		name := "ip-10-" + string(rune('a'+n/100)) + "-" + strings.Repeat("7", n%10) + "-" + string(rune('a'+n/10%10)) + ".eu-central-1.compute.internal"
		u := proof.Unit{
			Name: name, Nodes: []string{name}, Class: class, Meter: verify.Meter{Interval: time.Second}, Ready: true,
			Candidates: []proof.Candidate{{Lever: model.LeverAffinity, Watts: 9}, {Lever: model.LeverBuffering, Watts: 5}, {Lever: model.LeverShaping, Watts: 2}},
		}
		// Two thirds are approved: all their levers are held back.
		if u.Approved = n%48 >= 16; !u.Approved {
			u.Candidates = u.Candidates[:1]
		}
		f.units = append(f.units, u)
		// Neither adopted nor rejected: what it loses cannot be shown.
		f.truths[name] = map[model.Lever]float64{model.LeverAffinity: -0.02}
		f.plans[name], f.acting[name] = map[model.Lever]*followed{}, map[model.Lever]int{}
	}
	// Sums that say something soon.
	f.step, f.sets.HoldBack = 15*time.Minute, 0.5
	f.run(150 * time.Minute)
	onTrial := f.stances(model.LeverAffinity)[model.StanceOnTrial]
	stored := f.proofs.Save()
	t.Logf("%d bytes with %d units on trial", len(stored), onTrial)
	// An object's field holds a mebibyte in base64.
	const most = 1 << 20 * 3 / 4
	if len(stored) > most || onTrial < 300 {
		t.Errorf("%d bytes with %d units on trial, want at most %d", len(stored), onTrial, most)
	}
	if _, err := proof.Load(stored); err != nil {
		t.Error(err)
	}
}
