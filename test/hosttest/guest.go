package hosttest

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
)

// guestVariable makes the test binary behave as a VM's process. Its value is
// the process's comm.
const guestVariable = "JOULEVIRT_TEST_GUEST"

// init keeps the main goroutine of a VM's process on the main thread, which no
// other goroutine is to rename.
func init() {
	if os.Getenv(guestVariable) != "" {
		runtime.LockOSThread()
	}
}

// Main runs the tests of a package, or a VM's process when it was started as
// one.
func Main(m *testing.M) {
	if comm := os.Getenv(guestVariable); comm != "" {
		runGuest(comm)
		return
	}
	os.Exit(m.Run())
}

// guest is the inside of a VM's process. It obeys the lines of its standard
// input and ends with it, so that it never outlives its test.
type guest struct {
	mu   sync.Mutex
	ends map[string]chan struct{}
}

func runGuest(comm string) {
	runtime.GOMAXPROCS(1)
	if err := os.WriteFile(fmt.Sprintf("/proc/self/task/%d/comm", os.Getpid()), []byte(comm), 0); err != nil {
		fmt.Println("failed:", err)
		return
	}
	fmt.Println("ok 0")
	g := &guest{ends: map[string]chan struct{}{}}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		verb, rest, _ := strings.Cut(lines.Text(), "\t")
		if err := g.obey(verb, strings.Split(rest, "\t")); err != nil {
			fmt.Println("failed:", err)
		}
	}
}

func (g *guest) obey(verb string, args []string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch verb {
	case "thread", "spin":
		cpus, err := units.ParseCPUSet(args[1])
		if err != nil {
			return err
		}
		end := make(chan struct{})
		g.ends[args[0]] = end
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
			return err
		}
		go runThread(thread{name: args[0], cpus: cpus, spin: verb == "spin", ordered: now.Nano(), end: end})
		return nil
	case "vhost":
		if err := openVhost(); err != nil {
			return err
		}
		fmt.Println("ok 0")
		return nil
	case "end":
		close(g.ends[args[0]])
		return nil
	default:
		return fmt.Errorf("verb %q is not known", verb)
	}
}

// openVhost has the kernel make a vhost worker for this process, as QEMU does for each
// queue of a network device. It ends with the process.
func openVhost() error {
	const setOwner = 0xaf01 // VHOST_SET_OWNER
	fd, err := unix.Open("/dev/vhost-net", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/vhost-net: %w", err)
	}
	if err := unix.IoctlSetInt(fd, setOwner, 0); err != nil {
		return fmt.Errorf("own /dev/vhost-net: %w", err)
	}
	return nil
}

// thread is a thread to be started.
type thread struct {
	name    string
	cpus    units.CPUSet
	spin    bool
	ordered int64 // when, in nanoseconds since boot
	end     chan struct{}
}

// runThread is a thread of its own: locked and never unlocked, it ends with
// the goroutine.
func runThread(t thread) {
	runtime.LockOSThread()
	if start, err := ownStart(); err != nil || start < t.ordered/tick {
		// The runtime had this one idle. It is kept, so that in the end a new one
		// has to be created.
		go runThread(t)
		select {}
	}
	buf := append([]byte(t.name), 0)
	if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&buf[0])), 0, 0, 0); err != nil {
		fmt.Println("failed:", err)
		return
	}
	if !t.cpus.IsEmpty() {
		mask := unix.NewCPUSet(units.MaxCPUs)
		for _, cpu := range t.cpus.CPUs() {
			mask.Set(cpu)
		}
		if err := unix.SchedSetaffinityDynamic(0, mask); err != nil {
			fmt.Println("failed:", err)
			return
		}
	}
	fmt.Println("ok", unix.Gettid())
	for t.spin {
		select {
		case <-t.end:
			return
		default:
		}
	}
	<-t.end
}

// tick is the unit of start times in /proc, in nanoseconds.
const tick = 1_000_000_000 / host.TicksPerSecond

// ownStart is when this thread was created, in ticks since boot.
func ownStart() (int64, error) {
	content, err := os.ReadFile("/proc/thread-self/stat")
	if err != nil {
		return 0, err
	}
	return startOf(string(content))
}

// startOf reads field 22 of a stat file; no comm here has a parenthesis.
func startOf(stat string) (int64, error) {
	_, rest, _ := strings.Cut(stat, ") ")
	fields := strings.Fields(rest)
	const start = 22 - 3 // the rest starts with field 3
	if len(fields) <= start {
		return 0, fmt.Errorf("stat %q has no start time", stat)
	}
	return strconv.ParseInt(fields[start], 10, 64)
}
