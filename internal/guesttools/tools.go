package guesttools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/datapath/inband"
	"github.com/joulevirt/joulevirt/internal/model"
)

const (
	// lease is how long packets may be held when the tools are killed.
	lease = 5 * time.Second
	// retryAfter is how long what failed, or is somebody else's, is left alone.
	retryAfter = time.Minute
)

// Holder has cards hold what they send. Cards are given by their index. The errors
// of Hold wrap datapath.ErrForeign or ErrUnsupported when that is why.
type Holder interface {
	// Hold has packets that leave through a card held as wanted; the zero value of as
	// holds none. Done again it changes nothing.
	Hold(card int, as model.Buffering) error
	// Release lets out what a card holds, in order, removes what Hold gave it, in
	// this run or one before, and gives it the kernel's own queue back. Nothing is to be
	// done on a card that is gone.
	Release(card int) error
	// Extend lets packets be held for so long from now on.
	Extend(valid time.Duration) error
}

// Options of the tools.
type Options struct {
	// SysRoot is where sysfs is mounted, StateDir where changes are recorded.
	SysRoot, StateDir string
	// Cards by name. Empty: all of virtio.
	Cards []string
	// Longest window that the guest tolerates. 0: it declines.
	Longest time.Duration
	Holder  Holder
	// Now is the time since some moment.
	Now func() time.Duration
	Log *slog.Logger
}

// Tools tend the cards of one guest. They are used by one goroutine.
type Tools struct {
	Options
	cards   cards
	journal *journal
	// states of cards by their index: a name and an address may change.
	states  map[int]*cardState
	written []byte // the status as it is on disk
	// failing is the last round's error as text, to log it once.
	failing string
}

// cardState is a card and what is known of it.
type cardState struct {
	card
	memory   memory
	line     *line
	nonce    uint32
	declared bool
	// declaredAt is when the last declaration was sent.
	declaredAt time.Duration
	// in are the receive and out the transmit half.
	in, out half
	wished  wish
	// flush that was written to the card, and as what it should hold, heldAt since when.
	flush  time.Duration
	as     model.Buffering
	heldAt time.Duration
}

// half is what became of one half, and from when on it may be tried.
type half struct {
	Half
	retryAt time.Duration
}

// Open makes tools, and undoes what a run before left: ErrInUse when one goes on.
func Open(o Options) (*Tools, error) {
	j, err := openJournal(o.StateDir)
	if err != nil {
		return nil, err
	}
	t := &Tools{
		Options: o, journal: j, states: map[int]*cardState{},
		cards: cards{sysRoot: o.SysRoot, only: o.Cards},
	}
	if err := t.restore(); err != nil {
		return nil, errors.Join(err, j.close())
	}
	return t, nil
}

// Restore undoes what a run that is gone left, and returns how many cards that were.
func Restore(o Options) (changed int, err error) {
	j, err := openJournal(o.StateDir)
	if err != nil {
		return 0, err
	}
	changed = len(j.entries)
	t := &Tools{Options: o, journal: j, cards: cards{sysRoot: o.SysRoot}}
	return changed, errors.Join(t.restore(), j.close())
}

// Run tends the cards, a round a tick, until the context ends, and then undoes all.
func (t *Tools) Run(ctx context.Context, ticks <-chan time.Time) error {
	for {
		t.logFailure(t.round())
		select {
		case <-ctx.Done():
			return t.close()
		case <-ticks:
		}
	}
}

// logFailure logs a failure when it is another one than in the last round.
func (t *Tools) logFailure(failure error) {
	text := ""
	if failure != nil {
		text = failure.Error()
	}
	if text != "" && text != t.failing {
		t.Log.Error("some part of the round failed", "error", failure)
	}
	t.failing = text
}

// close undoes all changes.
func (t *Tools) close() error {
	err := t.restore()
	for _, c := range t.states {
		err = errors.Join(err, c.closeLine())
	}
	return errors.Join(err, t.journal.close())
}

// round tends each card once.
func (t *Tools) round() error {
	found, err := t.cards.find()
	if err != nil {
		return err
	}
	for index, known := range t.states {
		if !slices.ContainsFunc(found, func(c card) bool { return c.index == index }) {
			delete(t.states, index)
			err = errors.Join(err, known.closeLine(), t.undo(t.journal.of(known.card)))
		}
	}
	now, holds := t.Now(), false
	for _, c := range found {
		if t.states[c.index] == nil {
			t.states[c.index] = &cardState{}
		}
		t.states[c.index].card = c
		if failed := t.tend(t.states[c.index], now); failed != nil {
			err = errors.Join(err, fmt.Errorf("card %s: %w", c.name, failed))
		}
		holds = holds || !t.states[c.index].as.IsZero()
	}
	if holds {
		err = errors.Join(err, t.Holder.Extend(lease))
	}
	return errors.Join(err, t.writeStatus(found))
}

// tend does a round for one card. One that cannot be read, or has no socket, counts as slow,
// or unanswered.
func (t *Tools) tend(c *cardState, now time.Duration) error {
	s := observation{now: now, received: c.memory.received}
	received, err := t.cards.received(c.name)
	if err == nil {
		s.received = received
	}
	failures := []error{err}
	if c.line == nil {
		c.line, err = openLine(c.card)
		failures = append(failures, err)
	}
	if c.line != nil && c.declared {
		s.answer, err = c.line.receive(c.card, c.nonce)
		failures = append(failures, err)
	}
	c.memory, c.wished = decide(c.memory, s, t.Longest)
	t.transmit(c, now)
	t.receive(c, now)
	if c.line != nil && (!c.declared || now-c.declaredAt >= inband.Interval) {
		// Unlike anything that others could guess: see docs/design/shaping-and-buffering.md.
		c.nonce, c.declared, c.declaredAt = rand.Uint32(), true, now
		failures = append(failures, c.line.send(inband.Declaration{
			Source: c.address, Nonce: c.nonce, Tolerated: t.Longest, Transmit: c.as.Window, Defers: c.flush > 0,
		}.Frame()))
	}
	return errors.Join(failures...)
}

func (c *cardState) closeLine() error {
	if c.line == nil {
		return nil
	}
	err := c.line.close()
	c.line = nil
	return err
}

// writeStatus writes the status when it changed.
func (t *Tools) writeStatus(found []card) error {
	status := Status{Running: true, ToleratedMicroseconds: int(t.Longest.Microseconds()), Cards: []CardStatus{}}
	for _, c := range found {
		status.Cards = append(status.Cards, t.states[c.index].status())
	}
	text, err := json.Marshal(status)
	if err != nil {
		return fmt.Errorf("encode the status: %w", err)
	}
	if string(text) == string(t.written) {
		return nil
	}
	if err := replace(filepath.Join(t.StateDir, statusName), text); err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	t.written = text
	return nil
}

func (c *cardState) status() CardStatus {
	return CardStatus{
		Card: c.name, WindowMicroseconds: int(c.wished.transmit.Window.Microseconds()),
		OnPacketsPerSecond: int(c.wished.transmit.OnPackets),
		Receive:            c.in.Half, Transmit: c.out.Half, Deferring: c.flush > 0,
	}
}
