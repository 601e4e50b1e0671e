package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/joulevirt/joulevirt/internal/datapath/bpf"
)

// kind is what is done to the packets of a device.
type kind int

const (
	buffering kind = iota
	shaping
)

// Settings say what is done to the packets of a device: Config has them held, Shaping shaped.
type Settings interface {
	kind() kind
	// write them to the program's configuration.
	write(config *ebpf.Map) error
}

// off are the settings with which all packets leave at once, those that wait in order.
func (k kind) off() Settings {
	if k == shaping {
		return Shaping{}
	}
	return Config{}
}

// objects are the names of a kind's programs and maps. A kind without an ingress program, or a
// guest's map, has "" there.
type objects struct {
	egress, ingress      string
	config, state, guest string
}

func (k kind) objects() objects {
	if k == shaping {
		return objects{egress: bpf.ShapeProgJvShape, config: bpf.ShapeMapJvShaping, state: bpf.ShapeMapJvShaped}
	}
	return objects{
		egress: bpf.JvProgJvEgress, ingress: bpf.JvProgJvIngress,
		config: bpf.JvMapJvConfig, state: bpf.JvMapJvState, guest: bpf.JvMapJvGuest,
	}
}

// program decides about the packets of one device.
type program struct {
	kind kind
	// egress receives what leaves through the device, ingress what comes in; ingress is nil of
	// a kind that does not care.
	egress, ingress      *ebpf.Program
	config, state, guest *ebpf.Map
	lease                *lease
}

// load makes the programs of one device, which hold nothing until they are configured. The
// error wraps ErrUnsupported when the kernel refuses them.
func load(k kind, lease *lease) (*program, error) {
	read := bpf.LoadJv
	if k == shaping {
		read = bpf.LoadShape
	}
	spec, err := read()
	if err != nil {
		return nil, err
	}
	made, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		MapReplacements: map[string]*ebpf.Map{bpf.JvMapJvLease: lease.until},
	})
	if err != nil {
		return nil, fmt.Errorf("load the eBPF programs: %w: %w", ErrUnsupported, err)
	}
	// The programs alone keep the maps that are not detached.
	defer made.Close()
	return newProgram(k, made, lease), nil
}

// newProgram detaches what a program needs from what was loaded.
func newProgram(k kind, made *ebpf.Collection, lease *lease) *program {
	names := k.objects()
	return &program{
		kind: k, lease: lease,
		egress: made.DetachProgram(names.egress), ingress: made.DetachProgram(names.ingress),
		config: made.DetachMap(names.config), state: made.DetachMap(names.state), guest: made.DetachMap(names.guest),
	}
}

// Configure says what is done to packets from now on. With zero settings they leave at once;
// those that wait still leave in order.
func (p *program) Configure(s Settings) error { return s.write(p.config) }

// Close closes the programs. Devices and pins keep them.
func (p *program) Close() error {
	return errors.Join(p.egress.Close(), p.ingress.Close(), p.config.Close(), p.state.Close(), p.guest.Close())
}

// Pins are in a folder in the device's, named by kind and version of the program. It is made
// under another name, so that what is there is whole.
const unfinished = "unfinished"

func (k kind) folder() string {
	if k == shaping {
		return "shaping-" + bpf.Version()
	}
	return "buffering-" + bpf.Version()
}

// openPinned takes over programs of this version that were pinned in a folder, with all that
// they know. fs.ErrNotExist when there are none.
func openPinned(folder string, lease *lease) (*program, error) {
	for _, k := range []kind{buffering, shaping} {
		from := filepath.Join(folder, k.folder())
		if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		p := &program{kind: k, lease: lease}
		if err := p.open(from); err != nil {
			return nil, errors.Join(fmt.Errorf("open the programs that are pinned in %s: %w", from, err), p.Close())
		}
		return p, nil
	}
	return nil, fmt.Errorf("no programs of this version are pinned in %s: %w", folder, fs.ErrNotExist)
}

func (p *program) open(folder string) error {
	names := p.kind.objects()
	for name, program := range map[string]**ebpf.Program{names.egress: &p.egress, names.ingress: &p.ingress} {
		if name == "" {
			continue
		}
		opened, err := ebpf.LoadPinnedProgram(filepath.Join(folder, name), nil)
		if err != nil {
			return err
		}
		*program = opened
	}
	for name, m := range map[string]**ebpf.Map{names.config: &p.config, names.state: &p.state, names.guest: &p.guest} {
		if name == "" {
			continue
		}
		opened, err := ebpf.LoadPinnedMap(filepath.Join(folder, name), nil)
		if err != nil {
			return err
		}
		*m = opened
	}
	return nil
}

// pinned is what can be pinned.
type pinned interface{ Pin(path string) error }

// Pin keeps the programs and their maps in a folder of a BPF file system, which is made.
func (p *program) Pin(folder string) error {
	making := filepath.Join(folder, unfinished)
	err := os.RemoveAll(making)
	if err == nil {
		err = os.MkdirAll(making, 0o700)
	}
	names := p.kind.objects()
	for name, object := range map[string]pinned{
		names.egress: p.egress, names.ingress: p.ingress, names.config: p.config, names.state: p.state, names.guest: p.guest,
	} {
		if err == nil && name != "" {
			err = object.Pin(filepath.Join(making, name))
		}
	}
	if err == nil {
		err = os.Rename(making, filepath.Join(folder, p.kind.folder()))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("pin programs in %s: %w", folder, err), os.RemoveAll(folder))
	}
	return nil
}
