package device

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/host"
)

// level is a made-up value of made-up devices.
type level int

func (l level) IsZero() bool       { return l == 0 }
func (l level) Equal(o level) bool { return l == o }

type thing struct {
	Device
	has level
}

// lever has only what is decided with.
type lever struct{ Lever[thing, level] }

func (lever) Words() Words                  { return Words{Done: "done", None: "there is none"} }
func (lever) Device(t thing) Device         { return t.Device }
func (lever) IsAs(t thing, want level) bool { return t.Owner == host.QueueOurs && t.has == want }
func ours(name string, has level) thing     { return thing{Device{name, 1, host.QueueOurs, "ours"}, has} }
func kernels(name string) thing             { return thing{Device{Name: name, Index: 1}, 0} }
func foreign(name string) thing             { return thing{Device{name, 1, host.QueueForeign, "fq 8001:"}, 0} }
func anew(t thing) thing                    { t.Index++; return t }
func applied(values ...any) map[string]done[level] {
	m := map[string]done[level]{}
	for i := 0; i < len(values); i += 2 {
		m[values[i].(string)] = done[level]{level(values[i+1].(int)), 1}
	}
	return m
}

func TestDecide(t *testing.T) {
	const look = 100
	for name, test := range map[string]struct {
		devices   []thing
		want      level
		journaled []string
		memory    memory[level]
		outcome   Outcome
		message   string
		changes   []change
		// lost is what the memory has afterwards.
		lost int
	}{
		"a new VM": {
			devices: []thing{kernels("a"), kernels("b")}, want: 1,
			outcome: Applied, changes: []change{{apply, "a"}, {apply, "b"}},
		},
		"as it is to be": {
			devices: []thing{ours("a", 1)}, want: 1, journaled: []string{"a"}, memory: memory[level]{applied: applied("a", 1)},
			outcome: Applied, changes: []change{{keep, "a"}},
		},
		"of an earlier agent, with what settings nobody knows": {
			devices: []thing{ours("a", 1)}, want: 1, journaled: []string{"a"},
			outcome: Applied, changes: []change{{apply, "a"}},
		},
		"another value": {
			devices: []thing{ours("a", 1)}, want: 2, journaled: []string{"a"}, memory: memory[level]{applied: applied("a", 1)},
			outcome: Applied, changes: []change{{apply, "a"}},
		},
		"one more device": {
			devices: []thing{ours("a", 1), kernels("b")}, want: 1, journaled: []string{"a"}, memory: memory[level]{applied: applied("a", 1)},
			outcome: Applied, changes: []change{{keep, "a"}, {apply, "b"}},
		},
		"one device less": {
			devices: []thing{ours("a", 1)}, want: 1, journaled: []string{"a", "b"}, memory: memory[level]{applied: applied("a", 1, "b", 1)},
			outcome: Applied, changes: []change{{keep, "a"}, {undo, "b"}},
		},
		"a device that was made anew": {
			devices: []thing{anew(kernels("a"))}, want: 1, journaled: []string{"a"}, memory: memory[level]{applied: applied("a", 1), lost: 1},
			outcome: Applied, changes: []change{{apply, "a"}}, lost: 1,
		},
		"made anew, and looking as before": {
			devices: []thing{anew(ours("a", 1))}, want: 1, journaled: []string{"a"}, memory: memory[level]{applied: applied("a", 1)},
			outcome: Applied, changes: []change{{apply, "a"}},
		},
		"undone by somebody else": {
			devices: []thing{kernels("a"), ours("b", 1)}, want: 1, journaled: []string{"a", "b"}, memory: memory[level]{applied: applied("a", 1, "b", 1)},
			outcome: Applied, changes: []change{{apply, "a"}, {apply, "b"}}, lost: 1,
		},
		"undone twice": {
			devices: []thing{kernels("a"), ours("b", 1)}, want: 1, journaled: []string{"a", "b"},
			memory:  memory[level]{applied: applied("a", 1, "b", 1), lost: 1},
			outcome: Contested, message: "2 times", changes: []change{{tidy, "a"}, {undo, "b"}}, lost: 2,
		},
		"contested once and for all": {
			devices: []thing{kernels("a")}, want: 1, memory: memory[level]{contested: true, lost: 2}, outcome: Contested, message: "2 times", lost: 2,
		},
		"somebody else's": {
			devices: []thing{ours("a", 1), foreign("b")}, want: 1, journaled: []string{"a"}, memory: memory[level]{applied: applied("a", 1)},
			outcome: Foreign, message: `b has queueing discipline "fq 8001:"`, changes: []change{{undo, "a"}},
		},
		"somebody else's since": {
			devices: []thing{foreign("a")}, want: 1, journaled: []string{"a"}, memory: memory[level]{applied: applied("a", 1)},
			outcome: Foreign, message: "remove it to have the VM done", changes: []change{{tidy, "a"}}, lost: 1,
		},
		"no device": {want: 1, journaled: []string{"a"}, outcome: None, message: "there is none", changes: []change{{undo, "a"}}},
		"refused": {
			devices: []thing{kernels("a")}, want: 1, memory: memory[level]{refused: "no fq", retry: look + 1}, outcome: Unsupported, message: "no fq",
		},
		"refused of one device": {
			devices: []thing{ours("a", 1), kernels("b")}, want: 1, journaled: []string{"a"}, memory: memory[level]{refused: "no fq", retry: look + 1},
			outcome: Unsupported, message: "no fq", changes: []change{{undo, "a"}},
		},
		"refused long ago": {
			devices: []thing{kernels("a")}, want: 1, memory: memory[level]{refused: "no fq", retry: look}, outcome: Applied, changes: []change{{apply, "a"}},
		},
		"not planned": {
			devices: []thing{ours("a", 1), kernels("b"), foreign("c")}, journaled: []string{"a", "b"},
			memory:  memory[level]{applied: applied("a", 1), lost: 1, contested: true},
			outcome: Undone, changes: []change{{undo, "a"}, {tidy, "b"}},
		},
		"not planned, of an agent whose journal is lost": {
			devices: []thing{ours("a", 7)}, outcome: Undone, changes: []change{{undo, "a"}},
		},
	} {
		journaled := map[string]bool{}
		for _, device := range test.journaled {
			journaled[device] = true
		}
		for _, want := range []*level{&test.want, nil} {
			if want == nil && test.want != 0 {
				continue
			}
			// A value of zero is as none at all, but for who contests others.
			lost, contested := test.lost, test.lost >= patience
			if want != nil && test.want == 0 {
				lost, contested = test.memory.lost, test.memory.contested
			}
			m := test.memory
			got := decide(lever{}, test.devices, want, journaled, &m, look)
			if got.outcome != test.outcome || !strings.Contains(got.message, test.message) || (got.message == "") != (test.message == "") {
				t.Errorf("%s: %s (%s)", name, got.outcome, got.message)
			}
			slices.SortFunc(got.changes, func(x, y change) int { return strings.Compare(x.name, y.name) })
			if diff := cmp.Diff(test.changes, got.changes, cmp.AllowUnexported(change{})); diff != "" {
				t.Errorf("%s: changes (-want +got):\n%s", name, diff)
			}
			if m.lost != lost || m.contested != contested {
				t.Errorf("%s: undone %d times by somebody else, contested %v; want %d, %v", name, m.lost, m.contested, lost, contested)
			}
		}
	}
}
