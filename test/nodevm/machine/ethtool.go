package machine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ifreq is the kernel's structure with a pointer.
type ifreq struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte
}

// ethtool does one command of SIOCETHTOOL, whose structure starts with its number, in the
// network namespace of the thread. The structure takes the answer.
func ethtool(device string, structure []byte) error {
	fd, err := socket(device)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request := ifreq{data: unsafe.Pointer(&structure[0])}
	copy(request.name[:unix.IFNAMSIZ-1], device)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	if errno != 0 {
		return fmt.Errorf("ethtool command %#x of %s: %w", binary.NativeEndian.Uint32(structure), device, errno)
	}
	return nil
}

func socket(device string) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("ask %s: %w", device, err)
	}
	return fd, nil
}

// Sizes of the kernel's structures, see linux/ethtool.h.
const (
	coalesceBytes   = 23 * 4
	rxFramesAt      = 2 * 4
	statNameBytes   = 32
	statHeaderBytes = 8
	namesHeader     = 12
	statNames       = 1 // ETH_SS_STATS
)

// RxFrames is how many packets a device hands over at once.
func RxFrames(device string) (uint32, error) {
	coalesce := make([]byte, coalesceBytes)
	binary.NativeEndian.PutUint32(coalesce, unix.ETHTOOL_GCOALESCE)
	err := ethtool(device, coalesce)
	return binary.NativeEndian.Uint32(coalesce[rxFramesAt:]), err
}

// SetRxFrames sets that.
func SetRxFrames(device string, frames uint32) error {
	coalesce := make([]byte, coalesceBytes)
	binary.NativeEndian.PutUint32(coalesce, unix.ETHTOOL_SCOALESCE)
	binary.NativeEndian.PutUint32(coalesce[rxFramesAt:], frames)
	return ethtool(device, coalesce)
}

// DriverCounters are those that a device's driver has, by name.
func DriverCounters(device string) (map[string]uint64, error) {
	fd, err := socket(device)
	if err != nil {
		return nil, err
	}
	info, err := unix.IoctlGetEthtoolDrvinfo(fd, device)
	if err := errors.Join(err, unix.Close(fd)); err != nil {
		return nil, fmt.Errorf("driver of %s: %w", device, err)
	}
	count := int(info.N_stats)
	names := make([]byte, namesHeader+count*statNameBytes)
	binary.NativeEndian.PutUint32(names, unix.ETHTOOL_GSTRINGS)
	binary.NativeEndian.PutUint32(names[4:], statNames)
	binary.NativeEndian.PutUint32(names[8:], uint32(count))
	if err := ethtool(device, names); err != nil {
		return nil, err
	}
	values := make([]byte, statHeaderBytes+count*8)
	binary.NativeEndian.PutUint32(values, unix.ETHTOOL_GSTATS)
	binary.NativeEndian.PutUint32(values[4:], uint32(count))
	if err := ethtool(device, values); err != nil {
		return nil, err
	}
	counters := map[string]uint64{}
	for i := range count {
		name, _, _ := bytes.Cut(names[namesHeader+i*statNameBytes:namesHeader+(i+1)*statNameBytes], []byte{0})
		counters[string(name)] = binary.NativeEndian.Uint64(values[statHeaderBytes+i*8:])
	}
	return counters, nil
}
