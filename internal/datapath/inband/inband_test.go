package inband

import (
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLayout(t *testing.T) {
	want := [Size]byte{
		0x01, 0x80, 0xC2, 0x00, 0x00, 0x0E, 2, 0, 0, 0, 10, 2, 0x88, 0xB5,
		'J', 'V', 'E', 'B', 1, 1, 0, 1, 0xA1, 0xB2, 0xC3, 0xD4, 0, 0, 0x01, 0xF4, 0, 0, 0, 0xFA,
	}
	if diff := cmp.Diff(want, Declaration{
		Source: MAC{2, 0, 0, 0, 10, 2}, Nonce: 0xA1B2C3D4,
		Tolerated: 500 * time.Microsecond, Transmit: 250 * time.Microsecond, Defers: true,
	}.Frame()); diff != "" {
		t.Errorf("declaration (-want +got):\n%s", diff)
	}
}

func TestParseAnswer(t *testing.T) {
	frame := func() []byte {
		f := [Size]byte{
			2, 0, 0, 0, 10, 2, 0x01, 0x80, 0xC2, 0x00, 0x00, 0x0E, 0x88, 0xB5,
			'J', 'V', 'E', 'B', 1, 2, 0, 0, 0, 0, 0, 7, 0, 0, 0x03, 0xE8, 0, 0, 0x27, 0x10,
		}
		return f[:]
	}
	want := Answer{Destination: MAC{2, 0, 0, 0, 10, 2}, Nonce: 7, Window: time.Millisecond, OnPackets: 10_000}
	if got, ok := ParseAnswer(append(frame(), 1, 2, 3)); !ok || got != want {
		t.Errorf("%+v, %t; want %+v", got, ok, want)
	}
	for name, change := range map[string]func(f []byte) []byte{
		"empty":           func([]byte) []byte { return nil },
		"a byte short":    func(f []byte) []byte { return f[:Size-1] },
		"other EtherType": func(f []byte) []byte { f[etherTypeAt] = 8; return f },
		"other magic":     func(f []byte) []byte { f[magicAt]++; return f },
		"later version":   func(f []byte) []byte { f[versionAt]++; return f },
		"a declaration":   func(f []byte) []byte { f[kindAt] = declaration; return f },
	} {
		if a, ok := ParseAnswer(change(frame())); ok {
			t.Errorf("%s: %+v", name, a)
		}
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
