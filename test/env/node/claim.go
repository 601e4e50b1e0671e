package node

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/test/env/node/internal/sandbox"
)

// environments is how many there may be on this machine at once. Each has a
// range of addresses that no part of a test cluster uses otherwise.
const environments = 32

// claim reserves a number of this machine for an environment, and with it a
// range of addresses, a folder and the names of cgroups and of a link.
type claim struct {
	number int
	// dir is the environment's folder.
	dir  string
	lock *os.File
}

// addresses is the range of an environment: 10.32.0.0/16 and following.
func (c *claim) addresses() netip.Prefix { return addressesOf(c.number) }

func addressesOf(number int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(32 + number), 0, 0}), 16)
}

// groupPrefix starts the names of the environment's cgroups.
func groupPrefix(number int) string { return fmt.Sprintf("joulevirt-%d-", number) }

// claims is the folder of environments: one a user, another user could not write our lock files.
func claims() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("joulevirt-nodes-%d", os.Getuid()))
}

// newClaim removes what killed runs left and reserves the first number whose
// addresses are not in use.
func newClaim(hierarchies []sandbox.Hierarchy) (*claim, error) {
	parent := claims()
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of environments: %w", err)
	}
	used, err := usedAddresses()
	if err != nil {
		return nil, err
	}
	var chosen *claim
	var problems []error
	for number := range environments {
		if chosen != nil && !exists(filepath.Join(parent, strconv.Itoa(number))) {
			continue // nothing to remove
		}
		c, err := tryClaim(parent, number)
		if err != nil {
			return nil, err
		}
		if c == nil {
			continue // another process's
		}
		if err := c.clean(hierarchies); err != nil {
			problems = append(problems, err)
		} else if chosen == nil && !overlaps(used, c.addresses()) {
			chosen = c
			continue
		}
		_ = c.lock.Close()
	}
	if chosen == nil {
		return nil, fmt.Errorf("all of %s to %s are in use by other environments or routes of this machine: %w",
			addressesOf(0), addressesOf(environments-1), errors.Join(problems...))
	}
	if err := os.MkdirAll(chosen.dir, 0o755); err != nil {
		return nil, errors.Join(fmt.Errorf("make the environment's folder: %w", err), chosen.lock.Close())
	}
	return chosen, nil
}

// tryClaim locks a number; nil when another process has it. The kernel drops
// the lock when this process ends, however it does.
func tryClaim(parent string, number int) (*claim, error) {
	dir := filepath.Join(parent, strconv.Itoa(number))
	file, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the lock of environment %d: %w", number, err)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return &claim{number: number, dir: dir, lock: file}, nil
	}
	_ = file.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, fmt.Errorf("lock environment %d: %w", number, err)
}

// clean removes the environment's cgroups and folder, once its processes are
// gone.
func (c *claim) clean(hierarchies []sandbox.Hierarchy) error {
	if err := sandbox.RemoveGroups(hierarchies, groupPrefix(c.number)); err != nil {
		return err
	}
	if err := os.RemoveAll(c.dir); err != nil {
		return fmt.Errorf("remove the folder of environment %d: %w", c.number, err)
	}
	return nil
}

// usedAddresses lists the destinations of this machine's routes, the default
// route aside.
func usedAddresses() ([]netip.Prefix, error) {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("list the machine's routes: %w", err)
	}
	var all []netip.Prefix
	for _, route := range routes {
		if route.Dst == nil {
			continue
		}
		address, ok := netip.AddrFromSlice(route.Dst.IP.To4())
		if bits, _ := route.Dst.Mask.Size(); ok && bits > 0 {
			all = append(all, netip.PrefixFrom(address, bits))
		}
	}
	return all, nil
}

func overlaps(used []netip.Prefix, wanted netip.Prefix) bool {
	for _, prefix := range used {
		if prefix.Overlaps(wanted) {
			return true
		}
	}
	return false
}
