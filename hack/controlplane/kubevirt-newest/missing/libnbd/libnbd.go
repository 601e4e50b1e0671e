// Package libnbd has what virt-launcher serves the blocks of a backup by, and refuses all of it.
package libnbd

import "errors"

const (
	CONTEXT_BASE_ALLOCATION   = "base:allocation"
	CONTEXT_QEMU_DIRTY_BITMAP = "qemu:dirty-bitmap:"

	STATE_HOLE  uint32 = 1
	STATE_ZERO  uint32 = 2
	STATE_DIRTY uint32 = 1
)

var errMissing = errors.New("this virt-launcher is built without libnbd: it makes no backups")

type (
	// Libnbd is a handle that nobody gets.
	Libnbd struct{}

	LibnbdExtent struct{ Length, Flags uint64 }

	ExtentCallback func(metacontext string, offset uint64, entries []LibnbdExtent, nbdErr *int) int

	PreadOptargs         struct{}
	BlockStatus64Optargs struct{}
)

func Create() (*Libnbd, error) { return nil, errMissing }

func (*Libnbd) AddMetaContext(string) error               { return errMissing }
func (*Libnbd) CanMetaContext(string) (bool, error)       { return false, errMissing }
func (*Libnbd) Close() error                              { return errMissing }
func (*Libnbd) ConnectUnix(string) error                  { return errMissing }
func (*Libnbd) GetSize() (uint64, error)                  { return 0, errMissing }
func (*Libnbd) SetExportName(string) error                { return errMissing }
func (*Libnbd) Pread([]byte, uint64, *PreadOptargs) error { return errMissing }

func (*Libnbd) BlockStatus64(uint64, uint64, ExtentCallback, *BlockStatus64Optargs) error {
	return errMissing
}
