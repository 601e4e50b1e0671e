package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/cilium/ebpf"

	"github.com/joulevirt/joulevirt/internal/datapath/bpf"
)

// Lease is the time until which packets may be held, shared by all programs that were
// loaded with it. Past it every packet leaves at once.
type Lease struct {
	until *ebpf.Map
}

// NewLease returns a lease that has expired. The error wraps ErrUnsupported when the kernel
// refuses it.
func NewLease() (*Lease, error) {
	spec, err := leaseSpec()
	if err != nil {
		return nil, err
	}
	until, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, fmt.Errorf("make the lease of packets: %w: %w", ErrUnsupported, err)
	}
	return &Lease{until: until}, nil
}

// OpenLease takes over the lease that is pinned at a path, or pins a new one there.
func OpenLease(path string) (*Lease, error) {
	until, err := ebpf.LoadPinnedMap(path, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return newPinnedLease(path)
	}
	if err != nil {
		return nil, fmt.Errorf("open the lease of packets at %s: %w", path, err)
	}
	spec, err := leaseSpec()
	if err == nil {
		err = spec.Compatible(until)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s is no lease of packets: remove it: %w", path, err), until.Close())
	}
	return &Lease{until: until}, nil
}

func newPinnedLease(path string) (*Lease, error) {
	l, err := NewLease()
	if err != nil {
		return nil, err
	}
	if err := l.until.Pin(path); err != nil {
		return nil, errors.Join(fmt.Errorf("pin the lease of packets at %s: %w", path, err), l.Close())
	}
	return l, nil
}

func leaseSpec() (*ebpf.MapSpec, error) {
	spec, err := bpf.LoadJv()
	if err != nil {
		return nil, err
	}
	return spec.Maps[bpf.JvMapJvLease], nil
}

// Extend lets packets be held until a time of CLOCK_MONOTONIC.
func (l *Lease) Extend(until time.Duration) error {
	if err := l.until.Put(uint32(0), uint64(until)); err != nil {
		return fmt.Errorf("extend the lease of packets: %w", err)
	}
	return nil
}

// read returns the time until which packets may be held.
func (l *Lease) read() (time.Duration, error) {
	var until uint64
	if err := l.until.Lookup(uint32(0), &until); err != nil {
		return 0, fmt.Errorf("read the lease of packets: %w", err)
	}
	return time.Duration(until), nil
}

// Close lets go of the lease. Programs keep it, and so does its pin.
func (l *Lease) Close() error { return l.until.Close() }
