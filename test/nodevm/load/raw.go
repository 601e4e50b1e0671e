package load

import (
	"runtime"
	"runtime/debug"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// threads that may block at once in what does not tell Go's scheduler of it.
const threads = 16

// OwnMachine prepares a process that has a machine of its own for making and taking in
// traffic. Go's scheduler looks after threads that block in system calls each 20 us, and a
// timer costs more in a machine in an emulated machine than a packet does. So the calls
// below are not told to it; garbage, which cannot be collected then, stays.
func OwnMachine() {
	runtime.GOMAXPROCS(threads)
	debug.SetGCPercent(-1)
}

// Environment is what the kernel's command line has to give such a process: the scheduler
// must not interrupt its threads.
const Environment = "GODEBUG=asyncpreemptoff=1"

func rawRead(fd int, buffer []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&buffer[0])), uintptr(len(buffer)))
	return int(n), errno
}

// Clock is the machine's CLOCK_MONOTONIC.
func Clock() time.Duration {
	var now unix.Timespec
	// It cannot fail.
	_, _, _ = unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&now)), 0)
	return time.Duration(now.Nano())
}

func rawWrite(fd int, packet []byte) unix.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&packet[0])), uintptr(len(packet)))
	return errno
}

// rawEcho receives one datagram and sends it back.
func rawEcho(fd int, buffer []byte) {
	var from unix.RawSockaddrInet4
	size := uint32(unix.SizeofSockaddrInet4)
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&buffer[0])), uintptr(len(buffer)), 0,
		uintptr(unsafe.Pointer(&from)), uintptr(unsafe.Pointer(&size)))
	if errno != 0 {
		return
	}
	// A lost answer is the asker's to notice.
	_, _, _ = unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&buffer[0])), n, 0,
		uintptr(unsafe.Pointer(&from)), uintptr(size))
}

// until waits for a time of Clock, to the microsecond. A thread that is to do so has been
// prepared.
func until(at time.Duration) {
	due := unix.NsecToTimespec(int64(at))
	for {
		_, _, errno := unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME,
			uintptr(unsafe.Pointer(&due)), 0, 0, 0)
		if errno != unix.EINTR {
			return
		}
	}
}
