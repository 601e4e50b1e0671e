package units

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// MaxCPUs is the number of CPUs that a CPUSet can hold: the largest NR_CPUS
// that Linux can be built with. A larger number in a text is refused rather
// than given memory.
const MaxCPUs = 8192

const wordBits = 64

// CPUSet is a set of logical CPU numbers. The zero value is the empty set. A
// CPUSet is a value: its methods never change it.
type CPUSet struct {
	// words hold one bit a CPU; the last word is never zero, so that equal
	// sets are equal slices.
	words []uint64
}

// NewCPUSet returns the set of the given CPUs; numbers below 0 or from MaxCPUs
// on are left out.
func NewCPUSet(cpus ...int) CPUSet {
	var s CPUSet
	for _, cpu := range cpus {
		s.set(cpu)
	}
	return s
}

// ParseCPUSet reads the kernel's list form, such as "0-3,8,10-11". Surrounding
// white space is allowed; an empty text is the empty set.
func ParseCPUSet(text string) (CPUSet, error) {
	var s CPUSet
	trimmed := strings.TrimSpace(text)
	if trimmed == "" {
		return s, nil
	}
	for part := range strings.SplitSeq(trimmed, ",") {
		low, high, err := parseRange(part)
		if err != nil {
			return CPUSet{}, fmt.Errorf("CPU list %.64q: %w", text, err)
		}
		s.setRange(low, high)
	}
	return s, nil
}

func parseRange(part string) (low, high int, err error) {
	first, last, isRange := strings.Cut(part, "-")
	if low, err = parseCPU(first); err != nil {
		return 0, 0, err
	}
	if !isRange {
		return low, low, nil
	}
	if high, err = parseCPU(last); err != nil {
		return 0, 0, err
	}
	if high < low {
		return 0, 0, fmt.Errorf("range %.32q ends before it starts", part)
	}
	return low, high, nil
}

func parseCPU(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%.32q is not a CPU number", text)
	}
	if n >= MaxCPUs {
		return 0, fmt.Errorf("CPU %d is above the largest, %d", n, MaxCPUs-1)
	}
	return int(n), nil
}

func (s *CPUSet) set(cpu int) {
	if cpu < 0 || cpu >= MaxCPUs {
		return
	}
	if missing := cpu/wordBits + 1 - len(s.words); missing > 0 {
		s.words = append(s.words, make([]uint64, missing)...)
	}
	s.words[cpu/wordBits] |= 1 << (cpu % wordBits)
}

// setRange costs little for texts that repeat a long range: agents send them.
func (s *CPUSet) setRange(low, high int) {
	s.set(high)
	for cpu := low; cpu < high; {
		if cpu%wordBits == 0 && cpu+wordBits <= high {
			s.words[cpu/wordBits] = math.MaxUint64
			cpu += wordBits
			continue
		}
		s.set(cpu)
		cpu++
	}
}

func (s CPUSet) word(i int) uint64 {
	if i < len(s.words) {
		return s.words[i]
	}
	return 0
}

func combine(a, b CPUSet, op func(x, y uint64) uint64) CPUSet {
	n := max(len(a.words), len(b.words))
	words := make([]uint64, n)
	for i := range words {
		words[i] = op(a.word(i), b.word(i))
	}
	for n > 0 && words[n-1] == 0 {
		n--
	}
	if n == 0 {
		return CPUSet{}
	}
	return CPUSet{words: words[:n]}
}

// Contains returns true if the set has the CPU.
func (s CPUSet) Contains(cpu int) bool {
	return cpu >= 0 && s.word(cpu/wordBits)&(1<<(cpu%wordBits)) != 0
}

// Len returns the number of CPUs in the set.
func (s CPUSet) Len() int {
	n := 0
	for _, w := range s.words {
		n += bits.OnesCount64(w)
	}
	return n
}

// IsEmpty returns true if the set has no CPU.
func (s CPUSet) IsEmpty() bool { return len(s.words) == 0 }

// Equal returns true if both sets have the same CPUs.
func (s CPUSet) Equal(o CPUSet) bool {
	if len(s.words) != len(o.words) {
		return false
	}
	for i, w := range s.words {
		if w != o.words[i] {
			return false
		}
	}
	return true
}

// Union returns the CPUs of either set.
func (s CPUSet) Union(o CPUSet) CPUSet {
	return combine(s, o, func(x, y uint64) uint64 { return x | y })
}

// Intersection returns the CPUs of both sets.
func (s CPUSet) Intersection(o CPUSet) CPUSet {
	return combine(s, o, func(x, y uint64) uint64 { return x & y })
}

// Difference returns the CPUs of s that o has not.
func (s CPUSet) Difference(o CPUSet) CPUSet {
	return combine(s, o, func(x, y uint64) uint64 { return x &^ y })
}

// IsSubsetOf returns true if o has every CPU of s.
func (s CPUSet) IsSubsetOf(o CPUSet) bool { return s.Difference(o).IsEmpty() }

// CPUs returns the CPU numbers in ascending order.
func (s CPUSet) CPUs() []int {
	cpus := make([]int, 0, s.Len())
	for i, w := range s.words {
		for ; w != 0; w &= w - 1 {
			cpus = append(cpus, i*wordBits+bits.TrailingZeros64(w))
		}
	}
	return cpus
}

// String returns the kernel's list form, such as "0-3,8".
func (s CPUSet) String() string {
	var b strings.Builder
	cpus := s.CPUs()
	for i := 0; i < len(cpus); {
		j := i
		for j+1 < len(cpus) && cpus[j+1] == cpus[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(cpus[i]))
		if j > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(cpus[j]))
		}
		i = j + 1
	}
	return b.String()
}

// MarshalText writes the kernel's list form.
func (s CPUSet) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the kernel's list form.
func (s *CPUSet) UnmarshalText(text []byte) error {
	parsed, err := ParseCPUSet(string(text))
	if err != nil {
		return err
	}
	*s = parsed
	return nil
}
