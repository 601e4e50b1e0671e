package thread

import (
	"cmp"
	"slices"

	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host"
)

// entries are the journal's, by thread.
type entries[V journal.Value[V]] map[host.TaskID]journal.Record[V]

// table holds the entries of each process that has some. A round that changes nothing
// neither copies nor sorts them.
type table[V journal.Value[V]] struct {
	processes map[host.TaskID]entries[V]
	count     int
	// changed is true when they are no longer those that were saved last.
	changed bool
}

func newTable[V journal.Value[V]](records []journal.Record[V]) table[V] {
	b := table[V]{processes: map[host.TaskID]entries[V]{}}
	for i := range records {
		b.put(records[i])
	}
	return b
}

// put adds an entry, or replaces that of its thread.
func (b *table[V]) put(record journal.Record[V]) {
	of := b.processes[record.Process]
	if of == nil {
		of = entries[V]{}
		b.processes[record.Process] = of
	}
	was, known := of[record.Thread]
	if known && was.Equal(record) {
		return
	}
	if !known {
		b.count++
	}
	of[record.Thread] = record
	b.changed = true
}

// remove drops a thread's entry, if any.
func (b *table[V]) remove(process, thread host.TaskID) {
	of := b.processes[process]
	if _, known := of[thread]; !known {
		return
	}
	delete(of, thread)
	b.count--
	b.changed = true
	if len(of) == 0 {
		delete(b.processes, process)
	}
}

// sorted returns the entries, with others in place of those of the same threads, in the
// order of the threads.
func (b *table[V]) sorted(instead entries[V]) []journal.Record[V] {
	records := make([]journal.Record[V], 0, b.count+len(instead))
	for _, of := range b.processes {
		for id, record := range of {
			if _, replaced := instead[id]; !replaced {
				records = append(records, record)
			}
		}
	}
	for _, record := range instead {
		records = append(records, record)
	}
	slices.SortFunc(records, func(x, y journal.Record[V]) int {
		return cmp.Or(cmp.Compare(x.Thread.PID, y.Thread.PID), cmp.Compare(x.Thread.TID, y.Thread.TID), cmp.Compare(x.Thread.Start, y.Thread.Start))
	})
	return records
}
