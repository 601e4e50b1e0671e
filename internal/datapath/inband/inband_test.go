package inband

import (
	"errors"
	"math"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func example() Declaration {
	return Declaration{
		Source: MAC{2, 0, 0, 0, 10, 2}, Nonce: 0xA1B2C3D4,
		Tolerated: 500 * time.Microsecond, Transmit: 250 * time.Microsecond, Defers: true,
	}
}

func TestLayout(t *testing.T) {
	want := [Size]byte{
		0x01, 0x80, 0xC2, 0x00, 0x00, 0x0E, 2, 0, 0, 0, 10, 2, 0x88, 0xB5,
		'J', 'V', 'E', 'B', 1, 1, 0, 1, 0xA1, 0xB2, 0xC3, 0xD4, 0, 0, 0x01, 0xF4, 0, 0, 0, 0xFA,
	}
	if diff := cmp.Diff(want, example().Frame()); diff != "" {
		t.Errorf("declaration (-want +got):\n%s", diff)
	}
	a := Answer{Destination: MAC{2, 0, 0, 0, 10, 2}, Nonce: 7, Window: time.Millisecond, OnPackets: 10_000}
	want = [Size]byte{
		2, 0, 0, 0, 10, 2, 0x01, 0x80, 0xC2, 0x00, 0x00, 0x0E, 0x88, 0xB5,
		'J', 'V', 'E', 'B', 1, 2, 0, 0, 0, 0, 0, 7, 0, 0, 0x03, 0xE8, 0, 0, 0x27, 0x10,
	}
	if diff := cmp.Diff(want, a.Frame()); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

// The host's side reads the same numbers from a header in C.
func TestHeaderSaysTheSame(t *testing.T) {
	text, err := os.ReadFile("../bpf/inband.h")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]uint64{
		"JV_ETHERTYPE": EtherType, "JV_MAGIC": magic, "JV_VERSION": Version,
		"JV_DECLARATION": declaration, "JV_ANSWER": answer, "JV_FLAG_DEFERS": flagDefers,
	} {
		match := regexp.MustCompile(`#define ` + name + `\s+(\w+)`).FindSubmatch(text)
		if match == nil {
			t.Errorf("inband.h has no %s", name)
			continue
		}
		if got, err := strconv.ParseUint(string(match[1]), 0, 32); err != nil || got != want {
			t.Errorf("%s is %s, want %#x", name, match[1], want)
		}
	}
	at, offsets := 0, map[string]int{}
	sizes := map[string]int{"__u8": 1, "__be16": 2, "__be32": 4}
	for _, field := range regexp.MustCompile(`(__u8|__be16|__be32) (\w+)(?:\[(\d+)\])?;`).FindAllSubmatch(text, -1) {
		offsets[string(field[2])] = at
		count := 1
		if len(field[3]) > 0 {
			if count, err = strconv.Atoi(string(field[3])); err != nil {
				t.Fatal(err)
			}
		}
		at += sizes[string(field[1])] * count
	}
	if diff := cmp.Diff(map[string]int{
		"destination": 0, "source": sourceAt, "ethertype": etherTypeAt, "magic": magicAt, "version": versionAt,
		"kind": kindAt, "flags": flagsAt, "nonce": nonceAt, "window_us": windowAt, "second": secondAt, "padding": secondAt + 4,
	}, offsets); diff != "" || at != Size {
		t.Errorf("struct jv_frame has %d bytes, want %d (-want +got):\n%s", at, Size, diff)
	}
}

func TestMalformed(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(f []byte) []byte
		want   error
	}{
		{"as it is", func(f []byte) []byte { return f }, nil},
		{"longer", func(f []byte) []byte { return append(f, 1, 2, 3) }, nil},
		{"unknown flags", func(f []byte) []byte { f[flagsAt] = 0x80; return f }, nil},
		{"empty", func([]byte) []byte { return nil }, ErrOther},
		{"a header", func(f []byte) []byte { return f[:magicAt] }, ErrOther},
		{"other EtherType", func(f []byte) []byte { f[etherTypeAt] = 8; return f }, ErrOther},
		{"other magic", func(f []byte) []byte { f[magicAt]++; return f }, ErrOther},
		{"cut after the magic", func(f []byte) []byte { return f[:versionAt] }, ErrMalformed},
		{"a byte short", func(f []byte) []byte { return f[:Size-1] }, ErrMalformed},
		{"later version", func(f []byte) []byte { f[versionAt]++; return f }, ErrVersion},
		{"an answer", func(f []byte) []byte { f[kindAt] = answer; return f }, ErrMalformed},
		{"tolerates an hour", func(f []byte) []byte { f[windowAt] = 0xFF; return f }, nil},
	} {
		f := example().Frame()
		if _, err := ParseDeclaration(test.change(f[:])); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
	}
	// More than fits is as much as fits, and less than nothing is nothing.
	f := Answer{Window: 2 * time.Hour}.Frame()
	if a, err := ParseAnswer(f[:]); err != nil || a.Window != math.MaxUint32*time.Microsecond {
		t.Errorf("an answer of two hours reads %v, %v", a.Window, err)
	}
	f = Answer{Window: -time.Hour}.Frame()
	if a, err := ParseAnswer(f[:]); err != nil || a.Window != 0 {
		t.Errorf("a negative answer reads %v, %v", a.Window, err)
	}
}

// Whatever comes is refused, or means what is sent when it is encoded again.
func FuzzParse(f *testing.F) {
	d := example().Frame()
	a := Answer{Nonce: 7, Window: time.Millisecond, OnPackets: 10_000}.Frame()
	f.Add(d[:])
	f.Add(a[:])
	f.Add(d[:20])
	f.Fuzz(func(t *testing.T, data []byte) {
		if got, err := ParseDeclaration(data); err == nil {
			again := got.Frame()
			if back, err := ParseDeclaration(again[:]); err != nil || back != got {
				t.Errorf("%+v came back as %+v, %v", got, back, err)
			}
		}
		if got, err := ParseAnswer(data); err == nil {
			again := got.Frame()
			if back, err := ParseAnswer(again[:]); err != nil || back != got {
				t.Errorf("%+v came back as %+v, %v", got, back, err)
			}
		}
	})
}
