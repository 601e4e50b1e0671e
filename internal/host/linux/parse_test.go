package linux

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/host"
)

// stat22 is what follows the comm up to the start time, 4711, and beyond.
const stat22 = " S 1 2 3 0 -1 4194560 5 6 7 8 9 10 11 12 20 0 4 0 4711 123 456\n"

func TestParseStat(t *testing.T) {
	for name, test := range map[string]struct {
		content string
		comm    string
		fails   bool
	}{
		"plain":                     {content: "42 (qemu-kvm)" + stat22, comm: "qemu-kvm"},
		"spaces":                    {content: "42 (CPU 0/KVM)" + stat22, comm: "CPU 0/KVM"},
		"parentheses":               {content: "42 (a) S 1 (b))" + stat22, comm: "a) S 1 (b)"},
		"newline":                   {content: "42 (a\nb)" + stat22, comm: "a\nb"},
		"empty comm":                {content: "42 ()" + stat22},
		"cut after the comm":        {content: "42 (qemu-kvm)", fails: true},
		"cut before the start":      {content: "42 (qemu-kvm) S 1 2 3", fails: true},
		"no comm":                   {content: "42 qemu S 1", fails: true},
		"parentheses the wrong way": {content: ")(", fails: true},
		"a start that is no number": {content: "42 (x)" + strings.Replace(stat22, "4711", "-1", 1), fails: true},
		"a start beyond 64 bits":    {content: "42 (x)" + strings.Replace(stat22, "4711", "18446744073709551616", 1), fails: true},
		"nothing":                   {content: "", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			comm, start, err := parseStat([]byte(test.content))
			if test.fails {
				if err == nil {
					t.Errorf("accepted as %q started at %d", comm, start)
				}
				return
			}
			if err != nil || comm != test.comm || start != 4711 {
				t.Errorf("comm %q, start %d, %v; want %q, 4711", comm, start, err, test.comm)
			}
		})
	}
}

func TestParseSchedstat(t *testing.T) {
	run, wait, switches, err := parseSchedstat([]byte("201239894 15831687 403\n"))
	if err != nil || run != 201239894*time.Nanosecond || wait != 15831687*time.Nanosecond || switches != 403 {
		t.Errorf("%v %v %d %v", run, wait, switches, err)
	}
	for _, bad := range []string{"", "1 2", "1 2 x", "-1 2 3", "9223372036854775808 0 0", "99999999999999999999 0 0"} {
		if _, _, _, err := parseSchedstat([]byte(bad)); err == nil {
			t.Errorf("%q accepted", bad)
		}
	}
}

const netDev = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 3256417    9793    0    0    0     0          0         0  3256417    9793    0    0    0     0       0          0
  tap0: 100 2 0 3 0 0 0 0 400 5 0 6 0 0 0 0
 tap12345678901:1 2 3
tapdeadbeef:7 8 0 9 0 0 0 0 10 11 0 12 0 0 0 0
  eth0: 560822172   41720    0    0    0     0          0         0  3508526   32861    0    0    0     0       0          0
`

func TestParseNetDev(t *testing.T) {
	want := []host.TapSample{
		{Name: "tap0", FromVM: host.TrafficCounters{Bytes: 100, Packets: 2, Drops: 3}, ToVM: host.TrafficCounters{Bytes: 400, Packets: 5, Drops: 6}},
		{Name: "tapdeadbeef", FromVM: host.TrafficCounters{Bytes: 7, Packets: 8, Drops: 9}, ToVM: host.TrafficCounters{Bytes: 10, Packets: 11, Drops: 12}},
	}
	if diff := cmp.Diff(want, parseNetDev([]byte(netDev))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	many := strings.Repeat("tap1: 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n", 1000)
	if n := len(parseNetDev([]byte(many))); n != maxTaps {
		t.Errorf("%d taps kept of a pod with 1000, want %d", n, maxTaps)
	}
}

func TestParseCPUTimes(t *testing.T) {
	got, ok := parseCPUTimes([]byte("cpu3 100 10 20 500 40 5 6 7 50 0"))
	want := host.CPUTimes{CPU: 3, Busy: 1410 * time.Millisecond, Idle: 5400 * time.Millisecond, Steal: 70 * time.Millisecond}
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Errorf("ok %v, -want +got:\n%s", ok, diff)
	}
	for _, other := range []string{"cpu  1 2 3 4 5 6 7 8", "cpu1 1 2", "cpu99999 1 2 3 4 5 6 7 8", "intr 1", ""} {
		if got, ok := parseCPUTimes([]byte(other)); ok {
			t.Errorf("%q read as %v", other, got)
		}
	}
}

func TestGuestOf(t *testing.T) {
	for cmdline, want := range map[string]string{
		"qemu-kvm -name guest=shop_web,debug-threads=on -S": "shop_web",
		"qemu-kvm --name guest=shop_web":                    "shop_web",
		"qemu-kvm -name shop_web":                           "shop_web",
		"q -S -machine none":                                "", // a probe of libvirt
		"q -name":                                           "",
		"q -name guest=":                                    "",
		"q -name process=qemu":                              "",
		"q -name  guest=shop_web":                           "",
		"":                                                  "",
	} {
		got, named := guestOf([]byte(strings.ReplaceAll(cmdline, " ", "\x00") + "\x00"))
		if named != (want != "") || named && got != want {
			t.Errorf("%q: %q, %v; want %q", cmdline, got, named, want)
		}
	}
}
