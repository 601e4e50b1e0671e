package guesttools

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/internal/datapath/inband"
	"github.com/joulevirt/joulevirt/internal/model"
)

const (
	driver = "virtio_net"
	// How often in a row the card's interrupts stay off for the time of the flush while
	// nothing came.
	deferTimes = 2
	hardIRQs   = "napi_defer_hard_irqs"
	flushTime  = "gro_flush_timeout" // in ns
)

var (
	// errForeign means that somebody else gave the card what the tools would give it.
	errForeign = errors.New("somebody else's")
	// errUnsupported means that the kernel lacks it.
	errUnsupported = errors.New("the kernel lacks it")
)

// card is a network card of the guest.
type card struct {
	name    string
	index   int
	address inband.MAC
}

// cards are those that sysfs shows.
type cards struct {
	sysRoot string
	// only those, whatever their driver is. Empty: all of virtio.
	only []string
}

func (c cards) dir(name string) string { return filepath.Join(c.sysRoot, "class/net", name) }

// find lists the cards in the order of their names.
func (c cards) find() ([]card, error) {
	entries, err := os.ReadDir(c.dir(""))
	if err != nil {
		return nil, fmt.Errorf("list network cards: %w", err)
	}
	var found []card
	for _, e := range entries {
		if !c.wants(e.Name()) {
			continue
		}
		card, err := c.read(e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue // it went in the meantime
		}
		if err != nil {
			return nil, err
		}
		found = append(found, card)
	}
	return found, nil
}

// at finds the card of an index, whatever its name and driver are. The error wraps
// fs.ErrNotExist when there is none.
func (c cards) at(index int) (card, error) {
	entries, err := os.ReadDir(c.dir(""))
	if err != nil {
		return card{}, fmt.Errorf("list network cards: %w", err)
	}
	for _, e := range entries {
		if n, err := c.number(e.Name(), "ifindex"); err == nil && n == uint64(index) {
			return card{name: e.Name(), index: index}, nil
		}
	}
	return card{}, fmt.Errorf("card %d: %w", index, fs.ErrNotExist)
}

func (c cards) wants(name string) bool {
	if len(c.only) > 0 {
		return slices.Contains(c.only, name)
	}
	target, err := os.Readlink(filepath.Join(c.dir(name), "device/driver"))
	return err == nil && filepath.Base(target) == driver
}

func (c cards) read(name string) (card, error) {
	index, err := c.number(name, "ifindex")
	if err != nil {
		return card{}, err
	}
	text, err := os.ReadFile(filepath.Join(c.dir(name), "address"))
	if err != nil {
		return card{}, fmt.Errorf("card %s: %w", name, err)
	}
	address, err := net.ParseMAC(strings.TrimSpace(string(text)))
	if err != nil || len(address) != len(inband.MAC{}) {
		return card{}, fmt.Errorf("card %s has no Ethernet address: %q: %w", name, text, err)
	}
	return card{name: name, index: int(index), address: inband.MAC(address)}, nil
}

// received is how many packets came in through the card.
func (c cards) received(name string) (uint64, error) { return c.number(name, "statistics/rx_packets") }

func (c cards) number(name, file string) (uint64, error) {
	text, err := os.ReadFile(filepath.Join(c.dir(name), file))
	if err != nil {
		return 0, fmt.Errorf("card %s: %w", name, err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("card %s: %s: %w", name, file, err)
	}
	return n, nil
}

func (c cards) write(name, file string, n uint64) error {
	// Never created: where the kernel has no such file there is nothing to write.
	f, err := os.OpenFile(filepath.Join(c.dir(name), file), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return fmt.Errorf("card %s: %w", name, err)
	}
	_, err = f.WriteString(strconv.FormatUint(n, 10))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("card %s: %s to %d: %w", name, file, n, err)
	}
	return nil
}

// deferral is what sysfs says about a card's receive interrupts.
type deferral struct{ times, flush uint64 }

// isDefault returns true if nobody changed it.
func (d deferral) isDefault() bool { return d == deferral{} }

// isOurs returns true if it is what the tools write, or the half of it that an end in
// between leaves.
func (d deferral) isOurs() bool {
	window := time.Duration(d.flush)
	return (d.times == deferTimes || d.times == 0) && (model.IsWindow(window) || window == 0)
}

// deferral reads it. An error that wraps errUnsupported when the kernel has no such
// thing: those before Linux 5.8.
func (c cards) deferral(name string) (d deferral, err error) {
	if d.times, err = c.number(name, hardIRQs); err == nil {
		d.flush, err = c.number(name, flushTime)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", errUnsupported, err)
	}
	return d, err
}

// deferFor has receive interrupts deferred, or no longer when flush is 0. Interrupts are
// off between packets only while both are set, so that is the last that is set and the
// first that is reverted.
func (c cards) deferFor(name string, flush time.Duration) error {
	if flush == 0 {
		return errors.Join(c.write(name, hardIRQs, 0), c.write(name, flushTime, 0))
	}
	if err := c.write(name, flushTime, uint64(flush)); err != nil {
		return err
	}
	return c.write(name, hardIRQs, deferTimes)
}
