package linux

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/joulevirt/joulevirt/internal/host"
)

// Limits of what is kept of texts that a VM's owner can influence.
const (
	maxTaps     = 64
	maxCmdline  = 4 << 10 // bytes that are read: libvirt gives the guest's name first
	maxTapName  = 15      // IFNAMSIZ without its terminating zero
	startField  = 22      // of /proc/PID/stat, counted from 1
	schedFields = 3
)

// errMalformed marks content that the kernel does not write.
var errMalformed = errors.New("malformed")

// parseStat reads the comm and the start time (in ticks since boot) out of a
// stat file. A comm may hold parentheses, spaces and newlines: it ends at the
// last closing parenthesis, because no field after it can hold one.
func parseStat(content []byte) (comm string, start uint64, err error) {
	open, end := bytes.IndexByte(content, '('), bytes.LastIndexByte(content, ')')
	if open < 0 || end < open {
		return "", 0, fmt.Errorf("stat %.64q: no comm in parentheses: %w", content, errMalformed)
	}
	rest := content[end+1:]
	// The first field of the rest is the state, which is number 3.
	var field []byte
	for range startField - 2 {
		if field, rest = nextField(rest); field == nil {
			return "", 0, fmt.Errorf("stat of %.32q has no start time: %w", content[open+1:end], errMalformed)
		}
	}
	if start, err = parseUint(field); err != nil {
		return "", 0, fmt.Errorf("start time in stat of %.32q: %w", content[open+1:end], err)
	}
	return string(content[open+1 : end]), start, nil
}

// parseSchedstat reads a schedstat file: run time and wait time in
// nanoseconds, and how often the task was switched in.
func parseSchedstat(content []byte) (run, wait time.Duration, switches uint64, err error) {
	var values [schedFields]uint64
	rest := content
	for i := range values {
		var field []byte
		if field, rest = nextField(rest); field == nil {
			return 0, 0, 0, fmt.Errorf("schedstat %.64q has fewer than %d fields: %w", content, schedFields, errMalformed)
		}
		if values[i], err = parseUint(field); err != nil {
			return 0, 0, 0, fmt.Errorf("schedstat %.64q: %w", content, err)
		}
	}
	const maxDuration = 1<<63 - 1
	if values[0] > maxDuration || values[1] > maxDuration {
		return 0, 0, 0, fmt.Errorf("schedstat %.64q: a time beyond what can be: %w", content, errMalformed)
	}
	return time.Duration(values[0]), time.Duration(values[1]), values[2], nil
}

// parseNetDev reads the tap devices out of a net/dev file. What the host
// transmits on a tap is what the VM receives. Lines that are not of a tap, or
// not as the kernel writes them, are passed over.
func parseNetDev(content []byte) []host.TapSample {
	var taps []host.TapSample
	for line := range bytes.Lines(content) {
		name, rest, found := cutLast(bytes.TrimSpace(line), ':')
		if !found || !isTap(name) || len(taps) == maxTaps {
			continue
		}
		var values [16]uint64
		complete := true
		for i := range values {
			var field []byte
			field, rest = nextField(rest)
			value, err := parseUint(field)
			complete = complete && err == nil
			values[i] = value
		}
		if !complete {
			continue
		}
		taps = append(taps, host.TapSample{
			Name:   string(name),
			FromVM: host.TrafficCounters{Bytes: values[0], Packets: values[1], Drops: values[3]},
			ToVM:   host.TrafficCounters{Bytes: values[8], Packets: values[9], Drops: values[11]},
		})
	}
	return taps
}

// isTap knows the names that KubeVirt gives taps: tap0 and tap with a hash.
func isTap(name []byte) bool {
	return len(name) > len("tap") && len(name) <= maxTapName && bytes.HasPrefix(name, []byte("tap"))
}

// guestOf returns the guest's name in the -name of a command line, which is written
// "guest=NAME,debug-threads=on" or just "NAME". Names with commas, which QEMU doubles, come out
// cut: no VMI has one. It returns false without a name, as for the QEMUs by which libvirt probes.
func guestOf(cmdline []byte) (string, bool) {
	var option []byte
	for arg := range bytes.SplitSeq(bytes.TrimRight(cmdline, "\x00"), []byte{0}) {
		if string(option) != "-name" && string(option) != "--name" {
			option = arg
			continue
		}
		first, _, _ := bytes.Cut(arg, []byte(","))
		guest, explicit := bytes.CutPrefix(first, []byte("guest="))
		return string(guest), len(guest) > 0 && (explicit || !bytes.Contains(first, []byte("=")))
	}
	return "", false
}

func cutLast(s []byte, sep byte) (before, after []byte, found bool) {
	i := bytes.LastIndexByte(s, sep)
	if i < 0 {
		return s, nil, false
	}
	return s[:i], s[i+1:], true
}

// nextField returns the first white-space separated field and what follows
// it; nil when there is none.
func nextField(s []byte) (field, rest []byte) {
	i := 0
	for i < len(s) && isSpace(s[i]) {
		i++
	}
	j := i
	for j < len(s) && !isSpace(s[j]) {
		j++
	}
	if i == j {
		return nil, nil
	}
	return s[i:j], s[j:]
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' }

// parseUint is strconv.ParseUint without the string that it would have to
// allocate for each of thousands of numbers a second.
func parseUint(field []byte) (uint64, error) {
	if len(field) == 0 {
		return 0, fmt.Errorf("empty number: %w", errMalformed)
	}
	var n uint64
	for _, c := range field {
		digit := uint64(c - '0')
		if c < '0' || c > '9' || n > (1<<64-1-digit)/10 {
			return 0, fmt.Errorf("%.32q is not a 64-bit number: %w", field, errMalformed)
		}
		n = n*10 + digit
	}
	return n, nil
}
