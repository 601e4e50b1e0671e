package proof

import (
	"encoding/binary"
	"math"
	"slices"
	"time"
)

// coder writes what is stored, or reads it: the same functions do both, so that what is
// written is what is read. Once reading failed it gives zeros.
type coder struct {
	reading, failed bool
	// second is true of the form before classes told of clocks.
	second bool
	// data that was written, or is left to be read.
	data []byte
	// words are all names that follow, in order, which are told by their place.
	words []string
}

func (c *coder) fail() { c.data, c.failed = nil, true }

// need n more bytes. Nil: there are not as many.
func (c *coder) need(n int) []byte {
	if n > len(c.data) {
		c.fail()
		return nil
	}
	next := c.data[:n]
	c.data = c.data[n:]
	return next
}

// count is a whole number from 0 to the most.
func (c *coder) count(n *int, most int) {
	if !c.reading {
		c.data = binary.AppendUvarint(c.data, uint64(max(0, *n)))
		return
	}
	value, length := binary.Uvarint(c.data)
	if length <= 0 || most < 0 || value > uint64(most) {
		c.fail()
		*n = 0
		return
	}
	c.data = c.data[length:]
	*n = int(value)
}

func (c *coder) octet(b *uint8, most uint8) {
	if !c.reading {
		c.data = append(c.data, *b)
		return
	}
	if next := c.need(1); next != nil {
		*b = next[0]
	}
	if *b > most {
		c.fail()
		*b = 0
	}
}

func (c *coder) flag(f *bool) {
	var b uint8
	if *f {
		b = 1
	}
	c.octet(&b, 1)
	*f = b == 1
}

// instant is a time in whole seconds. Those before 1970 are none.
func (c *coder) instant(t *time.Time) {
	n := 0
	if !t.IsZero() {
		n = int(t.Unix())
	}
	const latest = 1 << 40
	c.count(&n, latest)
	if c.reading {
		if *t = (time.Time{}); n > 0 {
			*t = time.Unix(int64(n), 0).UTC()
		}
	}
}

// duration in whole seconds.
func (c *coder) duration(d *time.Duration) {
	n := int(*d / time.Second)
	c.count(&n, 1<<30)
	if c.reading {
		*d = time.Duration(n) * time.Second
	}
}

// figure is a number, which may be infinite.
func (c *coder) figure(f *float64) {
	if !c.reading {
		c.data = binary.LittleEndian.AppendUint64(c.data, math.Float64bits(*f))
		return
	}
	if next := c.need(8); next != nil {
		*f = math.Float64frombits(binary.LittleEndian.Uint64(next))
	}
	if math.IsNaN(*f) {
		c.fail()
	}
}

// finite is a number that is not infinite.
func (c *coder) finite(f *float64) {
	c.figure(f)
	if math.IsInf(*f, 0) && c.reading {
		c.fail()
	}
}

func (c *coder) short(f *float32) {
	if !c.reading {
		c.data = binary.LittleEndian.AppendUint32(c.data, math.Float32bits(*f))
		return
	}
	if next := c.need(4); next != nil {
		*f = math.Float32frombits(binary.LittleEndian.Uint32(next))
	}
	if f := float64(*f); math.IsNaN(f) || math.IsInf(f, 0) {
		c.fail()
	}
}

// text in full.
func (c *coder) text(t *string) {
	n := len(*t)
	c.count(&n, len(c.data))
	if !c.reading {
		c.data = append(c.data, *t...)
		return
	}
	*t = string(c.need(n))
}

// word is a text that is told by its place in words.
func (c *coder) word(t *string) {
	at, _ := slices.BinarySearch(c.words, *t)
	c.count(&at, len(c.words)-1)
	if !c.reading {
		return
	}
	if *t = ""; !c.failed {
		*t = c.words[at]
	}
}

// list of things, each of which takes at least a byte: none is made that is not there.
func list[T any](c *coder, all *[]T, each func(*T)) {
	n := len(*all)
	c.count(&n, len(c.data))
	if c.reading {
		*all = nil
	}
	for i := 0; i < n && !c.failed; i++ {
		if c.reading {
			var next T
			*all = append(*all, next)
		}
		each(&(*all)[i])
	}
}
