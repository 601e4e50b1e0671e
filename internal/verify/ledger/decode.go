package ledger

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify"
)

// decode reads a state. It refuses what encode would not have written.
func decode(stored []byte) (state, error) {
	if len(stored) < len(magic)+4 || string(stored[:len(magic)]) != magic {
		return state{}, errors.New("stored ledger: is none, or of another version: run that version, or remove it to begin anew")
	}
	body, sum := stored[:len(stored)-4], stored[len(stored)-4:]
	if crc32.ChecksumIEEE(body) != binary.LittleEndian.Uint32(sum) {
		return state{}, errors.New("stored ledger: its checksum is wrong, so it was changed or cut: put back what the manager stored, or remove it to begin anew")
	}
	r := reader{in: body[len(magic):]}
	s := r.state()
	if r.failed || len(r.in) > 0 {
		return state{}, errors.New("stored ledger: cannot be read though its checksum is right: remove it to begin anew")
	}
	return s, nil
}

// reader takes from what was stored. Once it failed it gives zeros.
type reader struct {
	in     []byte
	failed bool
}

func (r *reader) fail() {
	r.in, r.failed = nil, true
}

func (r *reader) state() state {
	s := newState()
	for range r.length() {
		cause, count := Cause(r.text()), r.count(math.MaxInt64)
		if !cause.isKnown() {
			r.fail()
		}
		s.causes[cause] = int64(count)
	}
	classes := make([]string, r.length())
	for i := range classes {
		classes[i] = r.text()
	}
	levers := make([]model.Lever, r.length())
	for i := range levers {
		levers[i] = r.lever()
	}
	for range r.length() {
		key := sumKey{month: Month(r.count(math.MaxInt32)), lever: pick(r, levers), modelled: r.flag()}
		if s.sums[key] != nil {
			r.fail()
		}
		s.sums[key] = r.sum(classes)
	}
	node := ""
	for range r.length() {
		if !r.flag() {
			node = r.text()
		}
		key := accountKey{node: node, lever: pick(r, levers)}
		if s.accounts[key] != nil || len(s.accounts) >= mostAccounts {
			r.fail()
		}
		s.accounts[key] = r.account()
	}
	return s
}

func (r *reader) sum(classes []string) *sum {
	s := &sum{seconds: r.amount(), joules: r.amount(), bytes: r.amount(), saved: r.float()}
	s.own = verify.ErrorSum{Variance: r.amount(), Fourths: r.amount()}
	s.chance = chance{variance: r.amount(), unsure: r.amount()}
	for range r.length() {
		class, e := pick(r, classes), commonError{joules: r.amount(), freedom: r.amount()}
		if !(e.freedom > 0) {
			r.fail()
		}
		if s.common == nil {
			s.common = map[string]commonError{}
		}
		s.common[class] = e
	}
	return s
}

func (r *reader) account() *account {
	a := &account{}
	count, at := r.length(), uint32(0)
	if count > mostFree {
		r.fail()
	}
	for i := range count {
		s := stretch{from: at + uint32(r.count(forever-int(at))), to: forever}
		if i < count-1 {
			s.to = s.from + uint32(r.count(forever-int(s.from)))
		}
		a.window.taken, a.window.free = true, append(a.window.free, s)
		at = s.to
	}
	a.last = r.short()
	for i := range a.saved {
		r.nodeSum(&a.saved[i])
	}
	return a
}

func (r *reader) nodeSum(n *nodeSum) {
	mask := r.bytes(1)[0]
	if mask&hasSaved != 0 {
		n.saved = r.float()
	}
	if mask&hasChance != 0 {
		if n.chance = (chance{variance: r.amount(), unsure: r.amount()}); !(n.chance.variance > 0 && n.chance.unsure > 0) {
			r.fail()
		}
	}
	for i, f := range n.figures() {
		if mask&(1<<i) == 0 {
			continue
		}
		*f = r.short()
		if !(*f > 0) {
			r.fail()
		}
		if i < len(n.months) {
			n.months[i].month = Month(r.count(math.MaxInt32))
		}
	}
}

// pick takes one of a list, by its place in it.
func pick[T any](r *reader, from []T) T {
	at := r.count(math.MaxInt32)
	if at >= len(from) {
		r.fail()
		var none T
		return none
	}
	return from[at]
}

func (r *reader) count(most int) int {
	n, length := binary.Uvarint(r.in)
	if length <= 0 || n > uint64(most) {
		r.fail()
		return 0
	}
	r.in = r.in[length:]
	return int(n)
}

// length is of a list: no longer than what is left, so that no list is made that is not
// there.
func (r *reader) length() int { return r.count(len(r.in)) }

func (r *reader) bytes(n int) []byte {
	if n > len(r.in) {
		r.fail()
		return make([]byte, n)
	}
	out := r.in[:n]
	r.in = r.in[n:]
	return out
}

func (r *reader) text() string { return string(r.bytes(r.length())) }

func (r *reader) lever() model.Lever {
	lever := model.Lever(r.text())
	if lever != "" && !model.IsWord(string(lever)) {
		r.fail()
	}
	return lever
}

func (r *reader) flag() bool {
	b := r.bytes(1)[0]
	if b > 1 {
		r.fail()
	}
	return b == 1
}

func (r *reader) float() float64 {
	f := math.Float64frombits(binary.LittleEndian.Uint64(r.bytes(8)))
	if !isNumber(f) {
		r.fail()
		return 0
	}
	return f
}

func (r *reader) short() float32 {
	f := math.Float32frombits(binary.LittleEndian.Uint32(r.bytes(4)))
	if !isNumber(float64(f)) {
		r.fail()
		return 0
	}
	return f
}

// amount is a figure of 0 or more.
func (r *reader) amount() float64 {
	f := r.float()
	if f < 0 {
		r.fail()
		return 0
	}
	return f
}
