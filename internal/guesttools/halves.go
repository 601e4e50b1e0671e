package guesttools

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/joulevirt/joulevirt/internal/datapath"
	"github.com/joulevirt/joulevirt/internal/model"
)

// checkAfter is how often it is made sure that a card still has what it was given.
const checkAfter = 10 * time.Second

// transmit has a card hold what it sends as wished.
func (t *Tools) transmit(c *cardState, now time.Duration) {
	e := t.journal.of(c.card)
	var err error
	switch {
	case !c.wished.attached && e.Attached:
		err = t.release(c)
	case !c.wished.attached, now < c.out.retryAt:
	case !e.Attached || !c.as.Equal(c.wished.transmit) || now-c.heldAt >= checkAfter:
		err = t.hold(c, now)
	}
	t.settle(c, &c.out, "transmit", err, now)
}

// hold gives a card the program and the queue, or has them use another window.
func (t *Tools) hold(c *cardState, now time.Duration) error {
	e := t.journal.of(c.card)
	e.Attached = true
	if err := t.journal.set(e); err != nil {
		return err
	}
	if err := t.Holder.Hold(c.index, c.wished.transmit); err != nil {
		return errors.Join(err, t.release(c))
	}
	c.as, c.heldAt = c.wished.transmit, now
	return nil
}

func (t *Tools) release(c *cardState) error {
	if err := t.Holder.Release(c.index); err != nil {
		return err
	}
	c.as = model.Buffering{}
	e := t.journal.of(c.card)
	e.Attached = false
	return t.journal.set(e)
}

// receive has a card defer its interrupts as wished.
func (t *Tools) receive(c *cardState, now time.Duration) {
	var err error
	if e := t.journal.of(c.card); e.Deferred || c.wished.transmit.Window > 0 && now >= c.in.retryAt {
		err = t.deferAsWished(c, e)
	}
	t.settle(c, &c.in, "receive", err, now)
}

func (t *Tools) deferAsWished(c *cardState, e entry) error {
	is, err := t.cards.deferral(c.name)
	if err != nil {
		return err
	}
	ours := deferral{}
	if e.Deferred {
		ours = deferral{times: deferTimes, flush: uint64(c.flush)}
	}
	if is != ours {
		// Left as it is, also at the end.
		c.flush, e.Deferred = 0, false
		foreign := fmt.Errorf("%w: %s is %d and %s is %d ns", errForeign, hardIRQs, is.times, flushTime, is.flush)
		return errors.Join(foreign, t.journal.set(e))
	}
	if c.flush == c.wished.flush {
		return nil
	}
	e.Deferred = true
	if err := t.journal.set(e); err != nil {
		return err
	}
	if err := t.cards.deferFor(c.name, c.wished.flush); err != nil {
		c.flush = 0
		return errors.Join(err, t.undefer(e))
	}
	c.flush = c.wished.flush
	if e.Deferred = c.flush > 0; e.Deferred {
		return nil
	}
	return t.journal.set(e)
}

// undefer reverts what the tools wrote for a card, whatever it is called now, and
// nothing else.
func (t *Tools) undefer(e entry) error {
	c, err := t.cards.at(e.Index)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil { // else it took it with it
		is, err := t.cards.deferral(c.name)
		if err == nil && !is.isDefault() && is.isOurs() {
			err = t.cards.deferFor(c.name, 0)
		}
		if err != nil {
			return err
		}
	}
	e.Deferred = false
	return t.journal.set(e)
}

// settle records and logs what became of a half.
func (t *Tools) settle(c *cardState, h *half, name string, err error, now time.Duration) {
	was := h.Half
	switch {
	case err != nil:
		h.Half, h.retryAt = Half{State: stateOf(err), Message: err.Error()}, now+retryAfter
	case t.Longest == 0:
		*h = half{Half: Half{State: Declined}}
	case !c.memory.answers(now):
		*h = half{Half: Half{State: NoAnswer}}
	case c.wished.transmit.Window == 0:
		*h = half{Half: Half{State: NotAllowed}}
	case now >= h.retryAt:
		*h = half{Half: Half{State: InForce}}
	}
	if h.Half != was {
		t.Log.Info(name+" half", "card", c.name, "state", string(h.State), "message", h.Message,
			"window", c.wished.transmit.Window)
	}
}

func stateOf(err error) State {
	switch {
	case errors.Is(err, errForeign), errors.Is(err, datapath.ErrForeign):
		return Foreign
	case errors.Is(err, errUnsupported), errors.Is(err, datapath.ErrUnsupported):
		return Unsupported
	}
	return Failed
}

// restore undoes all that is recorded.
func (t *Tools) restore() error {
	var problems []error
	for _, e := range t.journal.entries {
		problems = append(problems, t.undo(e))
	}
	return errors.Join(problems...)
}

// undo undoes what is recorded of a card, which may be gone.
func (t *Tools) undo(e entry) error {
	var problems []error
	if e.Attached {
		err := t.Holder.Release(e.Index)
		if err == nil {
			e.Attached = false
			err = t.journal.set(e)
		}
		problems = append(problems, err)
	}
	if e.Deferred {
		problems = append(problems, t.undefer(e))
	}
	return errors.Join(problems...)
}
