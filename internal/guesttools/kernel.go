package guesttools

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/datapath"
	"github.com/joulevirt/joulevirt/internal/model"
)

// Kernel is the Holder of the guest's own kernel.
type Kernel struct {
	*datapath.Datapath
	netlink *netlink.Handle
}

// NewKernel returns a Holder that keeps its programs in a folder of a BPF file system,
// when there is one, so that the next run finds them. The caller closes it.
func NewKernel(pinRoot string) (*Kernel, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	return &Kernel{datapath.New(datapath.Options{PinRoot: pinRoot, EgressOnly: true}), handle}, nil
}

// Close closes all programs.
func (k *Kernel) Close() error {
	k.netlink.Close()
	return k.Datapath.Close()
}

// id of a card for package datapath.
func id(index int) string { return "card-" + strconv.Itoa(index) }

// Hold has packets that leave through a card held as wanted.
func (k *Kernel) Hold(index int, as model.Buffering) error {
	link, err := k.netlink.LinkByIndex(index)
	if err != nil {
		return fmt.Errorf("card %d: %w", index, err)
	}
	config := datapath.Config{}
	if !as.IsZero() {
		config = datapath.ConfigOf(as)
	}
	if err := k.Apply(k.netlink, link, id(index), config); err != nil {
		return asUnsupported(err)
	}
	state, err := k.Observe(k.netlink, link, id(index))
	if err == nil && !state.Complete {
		// An fq older than Linux 5.8 takes the settings that it does not know without
		// a word.
		err = fmt.Errorf("%w: %s does not read back as it was set", datapath.ErrUnsupported, state.Queue)
	}
	return err
}

// asUnsupported separates what the kernel lacks from what failed.
func asUnsupported(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, ebpf.ErrNotSupported) {
		return fmt.Errorf("%w (it takes modules sch_fq, sch_ingress and cls_bpf): %w", datapath.ErrUnsupported, err)
	}
	return err
}

// Release removes from a card what Hold gave it, in this run or one before.
func (k *Kernel) Release(index int) error {
	link, err := k.netlink.LinkByIndex(index)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return k.Forget(id(index))
	}
	if err != nil {
		return fmt.Errorf("card %d: %w", index, err)
	}
	return k.Remove(k.netlink, link, id(index))
}
