// Package trials feeds the trials of levers, and stores them and the ledger in EnergyLedgers.
package trials

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/ledger"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/slots"
	"github.com/joulevirt/joulevirt/internal/trials"
)

// Memory is what the manager knows of trials and savings: of each policy one document, and the slots
// that are being measured. It is safe for concurrent use. Of a policy that was not loaded nothing is
// known, and nothing is recorded.
type Memory struct {
	clock clock.PassiveClock

	mu       sync.Mutex
	policies map[string]*document
	recorder *slots.Recorder
	// groups are the policies that groups belong to.
	groups map[string]string
}

// document of one policy, as it is stored.
type document struct {
	// HoldBack is the share of time in which adopted levers are off.
	HoldBack float64        `json:"holdBack"`
	Trials   *trials.Trials `json:"trials"`
	Ledger   *ledger.Ledger `json:"ledger"`
	// decided is how levers stood on each unit after the last round.
	decided map[string][]model.Proof
}

// NewMemory returns a Memory that knows nothing.
func NewMemory(clock clock.PassiveClock) *Memory {
	return &Memory{clock: clock, policies: map[string]*document{}, recorder: slots.NewRecorder(), groups: map[string]string{}}
}

// mostUnpacked is more than any document that an object holds becomes.
const mostUnpacked = 64 << 20

// Load begins a policy with what was stored of it. Of a new one that is nothing. Nothing changes when
// it cannot be read.
func (m *Memory) Load(policy string, stored []byte) error {
	d := &document{Trials: trials.New(), Ledger: &ledger.Ledger{}}
	if len(stored) > 0 {
		packed, err := gzip.NewReader(bytes.NewReader(stored))
		if err != nil {
			return fmt.Errorf("unpack status.memory: %w", err)
		}
		text, err := io.ReadAll(io.LimitReader(packed, mostUnpacked)) // to the end, where the checksum is
		if err != nil {
			return fmt.Errorf("unpack status.memory: %w", err)
		}
		if err := json.Unmarshal(text, d); err != nil {
			return fmt.Errorf("read status.memory: %w", err)
		}
		if d.Trials == nil || d.Ledger == nil {
			return errors.New("status.memory has no trials or no ledger")
		}
	}
	d.Trials.Complete()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.policies[policy] = d
	return nil
}

// Save returns what is to be stored of a policy: the same bytes for the same content. False: the
// policy was not loaded.
func (m *Memory) Save(policy string) (stored []byte, known bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.policies[policy]
	if d == nil {
		return nil, false, nil
	}
	var out bytes.Buffer
	packed := gzip.NewWriter(&out)
	if err := json.NewEncoder(packed).Encode(d); err != nil {
		return nil, true, fmt.Errorf("encode the ledger of policy %s: %w", policy, err)
	}
	if err := packed.Close(); err != nil {
		return nil, true, fmt.Errorf("compress the ledger of policy %s: %w", policy, err)
	}
	return out.Bytes(), true, nil
}

// Forget drops a policy that is gone. What was stored of it is not touched.
func (m *Memory) Forget(policy string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.policies, policy)
}

// View lets somebody read what is remembered of a policy. What is given must not be kept. False: the
// policy was not loaded, and nobody was called.
func (m *Memory) View(policy string, read func(*trials.Trials, *ledger.Ledger)) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.policies[policy]
	if d == nil {
		return false
	}
	read(d.Trials, d.Ledger)
	return true
}

// Of returns how levers stand on a unit of a policy: a node, or a group as "namespace/name". False:
// that is not known yet, for the policy was not loaded, or no round had the unit.
func (m *Memory) Of(policy, unit string) ([]model.Proof, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.policies[policy]
	if d == nil {
		return nil, false
	}
	return d.Trials.Of(unit, d.HoldBack, m.clock.Now())
}

// Known is what is remembered of a unit. loaded is false while nothing is known of the policy.
func (m *Memory) Known(policy, name string) (unit trials.Unit, known, loaded bool) {
	loaded = m.View(policy, func(t *trials.Trials, _ *ledger.Ledger) { unit, known = t.Known(name) })
	return unit, known, loaded
}

// Observe records what is known of a node of a policy now.
func (m *Memory) Observe(policy, node string, s slots.Sample) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, one := range m.recorder.Observe(node, s) {
		of := policy
		if one.Unit != node {
			of = m.groups[one.Unit]
		}
		d := m.policies[of]
		if d == nil {
			continue
		}
		if one.Unit == node {
			seconds := model.NodeSlot.Seconds()
			d.Ledger.BookDrawn(one.End, seconds*one.Watts, seconds*(one.Received+one.Sent))
		}
		for _, stratum := range d.Trials.Record(one.Unit, one.Slot, m.clock.Now()) {
			d.Ledger.Book(stratum.Lever, one.End, stratum.Comparison, stratum.Before)
		}
	}
}

// BookModelled books what a lever saves by models on a node without a meter.
func (m *Memory) BookModelled(policy string, lever v1alpha1.Lever, joules float64) {
	m.View(policy, func(_ *trials.Trials, l *ledger.Ledger) { l.BookModelled(lever, m.clock.Now(), joules) })
}

// ObserveGroup records what is known of a group, as "namespace/name", in each of its rounds.
func (m *Memory) ObserveGroup(policy, group string, s slots.GroupSample) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.groups[group] = policy
	m.recorder.ObserveGroup(group, s, m.clock.Now())
}

// ForgetGroup drops a group that is no more.
func (m *Memory) ForgetGroup(group string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.groups, group)
	m.recorder.ForgetGroup(group)
}

// Retain forgets all nodes but those given.
func (m *Memory) Retain(nodes map[string]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recorder.Retain(nodes)
}

// Round decides for all units of a policy. It returns what was decided, and the units on which levers
// stand otherwise than after the last round: they are to be planned anew.
func (m *Memory) Round(policy string, units []trials.Unit, holdBack float64) (events []trials.Event, changed []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.policies[policy]
	if d == nil {
		return nil, nil
	}
	now := m.clock.Now()
	d.HoldBack = holdBack
	events = d.Trials.Round(units, now)
	decided := make(map[string][]model.Proof, len(units))
	for i := range units {
		name := units[i].Name
		decided[name], _ = d.Trials.Of(name, holdBack, now)
		if was, known := d.decided[name]; !known || !slices.EqualFunc(was, decided[name], equalProofs) {
			changed = append(changed, name)
		}
	}
	d.decided = decided
	return events, changed
}

func equalProofs(x, y model.Proof) bool {
	return x.Lever == y.Lever && x.Stance == y.Stance && x.Use == y.Use && x.Until.Equal(y.Until) && x.Message == y.Message && x.Schedule.Equal(y.Schedule)
}

// meterLimit is the longest interval of a meter's figures by which a slot can be judged.
const meterLimit = 2 * time.Minute
