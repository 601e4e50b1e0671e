package datapath

import (
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf"

	"github.com/joulevirt/joulevirt/internal/datapath/bpf"
)

// ErrOtherVersion means that what is pinned was made by another version of the program:
// it cannot be taken over.
var ErrOtherVersion = errors.New("the pinned program is of another version")

// Program decides about the packets of one device.
type Program struct {
	hold, hear           *ebpf.Program
	config, state, guest *ebpf.Map
	lease                *Lease
}

// Load makes the programs of one device, which hold nothing until they are configured.
// The error wraps ErrUnsupported when the kernel refuses them.
func Load(lease *Lease) (*Program, error) {
	spec, err := bpf.LoadJv()
	if err != nil {
		return nil, err
	}
	return load(spec, lease)
}

// load makes the programs from what was compiled.
func load(spec *ebpf.CollectionSpec, lease *Lease) (*Program, error) {
	made, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		MapReplacements: map[string]*ebpf.Map{bpf.JvMapJvLease: lease.until},
	})
	if err != nil {
		return nil, fmt.Errorf("load the programs that hold packets: %w: %w", ErrUnsupported, err)
	}
	// What is not taken out of it is kept by the programs alone.
	defer made.Close()
	return take(made, lease), nil
}

// take takes what a Program needs out of what was loaded.
func take(made *ebpf.Collection, lease *Lease) *Program {
	return &Program{
		hold: made.DetachProgram(bpf.JvProgJvHold), hear: made.DetachProgram(bpf.JvProgJvHear),
		config: made.DetachMap(bpf.JvMapJvConfig), state: made.DetachMap(bpf.JvMapJvState),
		guest: made.DetachMap(bpf.JvMapJvGuest), lease: lease,
	}
}

// Hold is the program for what leaves through the device: on a host, towards the VM.
func (p *Program) Hold() *ebpf.Program { return p.hold }

// Hear is the program for what comes in through it: on a host, from the VM. It counts, and
// takes in what the guest declares.
func (p *Program) Hear() *ebpf.Program { return p.hear }

// Configure says how packets are held from now on. The zero Config holds none; those that
// wait still leave in order.
func (p *Program) Configure(c Config) error {
	if err := c.validate(); err != nil {
		return err
	}
	var before bpf.JvConfig
	if err := p.config.Lookup(uint32(0), &before); err != nil {
		return fmt.Errorf("read the configuration of the programs that hold packets: %w", err)
	}
	raw, err := c.raw(before)
	if err != nil {
		return err
	}
	if err := p.config.Put(uint32(0), &raw); err != nil {
		return fmt.Errorf("configure the programs that hold packets: %w", err)
	}
	return nil
}

// Close lets go of the programs. Devices and pins keep them.
func (p *Program) Close() error {
	var errs []error
	for _, c := range []io.Closer{p.hold, p.hear, p.config, p.state, p.guest} {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
