package datapath

import (
	"errors"
	"time"

	"github.com/cilium/ebpf"
)

// ErrOtherVersion means that what is pinned was made by another version of the program:
// it cannot be taken over.
var ErrOtherVersion = errors.New("the pinned program is of another version")

// Lease is the time until which packets may be held, shared by all programs that were
// loaded with it. Past it every packet leaves at once.
type Lease struct {
	until *ebpf.Map
}

// NewLease returns a lease that has expired.
func NewLease() (*Lease, error) { return nil, ErrUnsupported }

// OpenLease takes over the lease that is pinned at a path, or pins a new one there.
func OpenLease(path string) (*Lease, error) { return nil, ErrUnsupported }

// Extend lets packets be held until a time of CLOCK_MONOTONIC.
func (l *Lease) Extend(until time.Duration) error { return ErrUnsupported }

// Close lets go of the lease. Programs keep it, and so does its pin.
func (l *Lease) Close() error { return nil }

// Program decides about the packets of one device.
type Program struct {
	hold, hear *ebpf.Program
}

// Load makes the programs of one device, which hold nothing until they are configured.
// The error wraps ErrUnsupported when the kernel refuses them.
func Load(lease *Lease) (*Program, error) { return nil, ErrUnsupported }

// OpenPinned takes over programs that were pinned in a folder, with all that they know.
// ErrOtherVersion when they are not those that Load makes, or have another lease;
// fs.ErrNotExist when there are none.
func OpenPinned(folder string, lease *Lease) (*Program, error) { return nil, ErrUnsupported }

// Pin keeps the programs and their maps in a folder of a BPF file system, which is made.
func (p *Program) Pin(folder string) error { return ErrUnsupported }

// Unpin removes the folder that Pin made.
func Unpin(folder string) error { return nil }

// Hold is the program for what leaves through the device: on a host, towards the VM.
func (p *Program) Hold() *ebpf.Program { return p.hold }

// Hear is the program for what comes in through it: on a host, from the VM. It counts, and
// takes in what the guest declares.
func (p *Program) Hear() *ebpf.Program { return p.hear }

// Configure says how packets are held from now on. The zero Config holds none; those that
// wait still leave in order.
func (p *Program) Configure(c Config) error { return ErrUnsupported }

// Stats reads the counters. now is the time of CLOCK_MONOTONIC.
func (p *Program) Stats(now time.Duration) (Stats, error) { return Stats{}, ErrUnsupported }

// Close lets go of the programs. Devices and pins keep them.
func (p *Program) Close() error { return nil }
