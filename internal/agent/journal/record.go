package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Value is an attribute's value: an affinity, a slice. The zero value is the kernel's
// default, which a thread has that nobody gave any.
type Value[V any] interface {
	Equal(other V) bool
}

// Record is one thread of which the agent changed an attribute, or is about to.
type Record[V Value[V]] struct {
	PodUID string `json:"podUID"`
	// Process that the thread works for, by its main thread. A kernel's worker is a
	// process of its own.
	Process host.TaskID `json:"process"`
	Thread  host.TaskID `json:"thread"`
	// Original value, from before the agent's first write.
	Original Original[V] `json:"original"`
	// Ours is what the agent wrote, and Previous what it wrote before that.
	Ours     V `json:"ours"`
	Previous V `json:"previous,omitzero"`
	// Since is when the agent first wrote, in ticks since boot. A thread that
	// was created later may have inherited what was written.
	Since uint64 `json:"since"`
	// Undone is true when the original is back. The entry stays for one more
	// round, for threads that were created in the meantime.
	Undone bool `json:"undone,omitempty"`
}

// Entry is a thread that the agent bound to CPUs.
type Entry = Record[units.CPUSet]

// SliceEntry is a thread that the agent gave a scheduler slice.
type SliceEntry = Record[Slice]

// Equal tells whether two records say the same.
func (r Record[V]) Equal(o Record[V]) bool {
	return r.PodUID == o.PodUID && r.Process == o.Process && r.Thread == o.Thread &&
		r.Original.Value.Equal(o.Original.Value) && r.Ours.Equal(o.Ours) && r.Previous.Equal(o.Previous) &&
		r.Since == o.Since && r.Undone == o.Undone
}

// isWorker tells whether the thread is a kernel's, and no thread of the process.
func (r Record[V]) isWorker() bool { return r.Thread.PID != r.Process.PID }

// validate refuses what no agent writes.
func (r Record[V]) validate() error {
	var none V
	worker := r.Thread.PID == r.Thread.TID
	if r.Thread.PID <= 1 || r.Thread.TID <= 1 || r.Process.PID <= 1 || (r.isWorker() && !worker) || r.Ours.Equal(none) {
		return fmt.Errorf("entry of thread %d of process %d makes no sense", r.Thread.TID, r.Thread.PID)
	}
	return nil
}

// unrestricted is how an Original of that kind is written.
const unrestricted = `"unrestricted"`

// Original is the value that a thread had before the agent's first write. Its zero
// value is an unrestricted thread: nobody had given it one, and it follows the kernel's
// default, such as its cpuset when that changes.
type Original[V Value[V]] struct {
	// Value that somebody had given the thread.
	Value V
}

// Unrestricted tells whether nobody had given the thread a value.
func (o Original[V]) Unrestricted() bool {
	var none V
	return o.Value.Equal(none)
}

// MarshalJSON writes "unrestricted" or the value.
func (o Original[V]) MarshalJSON() ([]byte, error) {
	if o.Unrestricted() {
		return []byte(unrestricted), nil
	}
	return json.Marshal(o.Value)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (o *Original[V]) UnmarshalJSON(text []byte) error {
	*o = Original[V]{}
	if string(text) == unrestricted {
		return nil
	}
	if err := json.Unmarshal(text, &o.Value); err != nil {
		return err
	}
	if o.Unrestricted() {
		return errors.New("a thread cannot have had nothing, such as no CPU")
	}
	return nil
}

// Slice is a scheduler slice. 0 is the kernel's default.
type Slice time.Duration

// Equal tells whether two slices are the same.
func (s Slice) Equal(o Slice) bool { return s == o }

// String shows it as a duration.
func (s Slice) String() string { return time.Duration(s).String() }

// MarshalText writes it as a duration, such as 500µs.
func (s Slice) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (s *Slice) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil {
		return err
	}
	if d < 0 {
		return fmt.Errorf("slice %v is negative", d)
	}
	*s = Slice(d)
	return nil
}
