package ledger

import (
	"cmp"
	"encoding/binary"
	"hash/crc32"
	"maps"
	"math"
	"slices"

	"github.com/joulevirt/joulevirt/internal/model"
)

// magic begins what is stored, with the version of its form.
const magic = "joulevirt-ledger-2\n"

// encode writes a state: magic, causes, classes, sums, accounts, and the checksum of it all.
// Lengths and whole numbers are varints, all else is of fixed length with the lowest byte
// first. Everything is in order, so that equal states are equal bytes.
func encode(s state) []byte {
	w := writer{out: []byte(magic)}
	causes := slices.Sorted(maps.Keys(s.causes))
	w.count(len(causes))
	for _, cause := range causes {
		w.text(string(cause))
		w.count(int(s.causes[cause]))
	}
	classes := classesOf(s)
	w.count(len(classes))
	for _, class := range classes {
		w.text(class)
	}
	levers := leversOf(s)
	w.count(len(levers))
	for _, lever := range levers {
		w.text(string(lever))
	}
	keys := slices.SortedFunc(maps.Keys(s.sums), compareSums)
	w.count(len(keys))
	for _, key := range keys {
		w.count(int(key.month))
		w.count(slices.Index(levers, key.lever))
		w.flag(key.modelled)
		w.sum(s.sums[key], classes)
	}
	accounts := slices.SortedFunc(maps.Keys(s.accounts), compareAccounts)
	w.count(len(accounts))
	before := accountKey{}
	for _, key := range accounts {
		// A node's name is written with its first account.
		w.flag(key.node == before.node)
		if key.node != before.node {
			w.text(key.node)
		}
		w.count(slices.Index(levers, key.lever))
		w.account(s.accounts[key])
		before = key
	}
	return binary.LittleEndian.AppendUint32(w.out, crc32.ChecksumIEEE(w.out))
}

func classesOf(s state) []string {
	seen := map[string]bool{}
	for _, sum := range s.sums {
		for class := range sum.common {
			seen[class] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

func leversOf(s state) []model.Lever {
	seen := map[model.Lever]bool{}
	for key := range s.sums {
		seen[key.lever] = true
	}
	for key := range s.accounts {
		seen[key.lever] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

func compareSums(a, b sumKey) int {
	return cmp.Or(cmp.Compare(a.month, b.month), cmp.Compare(a.lever, b.lever), cmp.Compare(index(a.modelled), index(b.modelled)))
}

func compareAccounts(a, b accountKey) int {
	return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.lever, b.lever))
}

// writer appends to what is stored.
type writer struct{ out []byte }

func (w *writer) count(n int)   { w.out = binary.AppendUvarint(w.out, uint64(n)) }
func (w *writer) text(t string) { w.count(len(t)); w.out = append(w.out, t...) }
func (w *writer) flag(f bool)   { w.out = append(w.out, byte(index(f))) }
func (w *writer) float(f float64) {
	w.out = binary.LittleEndian.AppendUint64(w.out, math.Float64bits(f))
}
func (w *writer) short(f float32) {
	w.out = binary.LittleEndian.AppendUint32(w.out, math.Float32bits(f))
}

func (w *writer) sum(s *sum, classes []string) {
	for _, f := range []float64{s.seconds, s.joules, s.bytes, s.saved, s.own.Variance, s.own.Fourths, s.chance.variance, s.chance.unsure} {
		w.float(f)
	}
	w.count(len(s.common))
	for i, class := range classes {
		if e, has := s.common[class]; has {
			w.count(i)
			w.float(e.joules)
			w.float(e.freedom)
		}
	}
}

func (w *writer) account(a *account) {
	w.count(len(a.window.free))
	at := uint32(0)
	for i, s := range a.window.free {
		w.count(int(s.from - at))
		// The last has no end.
		if i < len(a.window.free)-1 {
			w.count(int(s.to - s.from))
		}
		at = s.to
	}
	w.short(a.last)
	for i := range a.saved {
		w.nodeSum(&a.saved[i])
	}
}

// nodeSum begins with a byte that says which figures follow: the others are 0.
func (w *writer) nodeSum(n *nodeSum) {
	var mask byte
	if n.chance != (chance{}) {
		mask |= hasChance
	}
	figures := n.figures()
	for i, f := range figures {
		if *f != 0 {
			mask |= 1 << i
		}
	}
	if n.saved != 0 {
		mask |= hasSaved
	}
	w.out = append(w.out, mask)
	if n.saved != 0 {
		w.float(n.saved)
	}
	if n.chance != (chance{}) {
		w.float(n.chance.variance)
		w.float(n.chance.unsure)
	}
	for i, f := range figures {
		if *f == 0 {
			continue
		}
		w.short(*f)
		if i < len(n.months) {
			w.count(int(n.months[i].month))
		}
	}
}

// hasSaved is the bit of what was saved, hasChance that of the chance of blocks: those of
// figures are below.
const (
	hasSaved  = 1 << 6
	hasChance = 1 << 7
)

// figures of a node's sum in the order in which they are stored: those of its months first.
func (n *nodeSum) figures() [6]*float32 {
	return [6]*float32{&n.months[0].own, &n.months[1].own, &n.own, &n.common, &n.ownFreedom, &n.commonFreedom}
}
