package linux

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/hosttest"
)

// BenchmarkReplyBesideHogs measures how long a network thread takes to answer beside three threads
// that never sleep on its CPU, with a slice of 1 ms for it and 1 ms, the kernel's own or 30 ms for
// them. It runs with -benchtime=1x.
func BenchmarkReplyBesideHogs(b *testing.B) {
	h := realHost(b)
	one, other := hosttest.TwoCPUs(b)
	const short, long = time.Millisecond, 30 * time.Millisecond
	all, byDefault, apart := besideHogs(b, h, one, other, short), besideHogs(b, h, one, other, 0), besideHogs(b, h, one, other, long)
	b.Logf("p99 of replies beside hogs with slices of 1 ms: %v, the kernel's own: %v, 30 ms: %v", all.p99, byDefault.p99, apart.p99)
	b.Logf("figure pool_reply_p99_ratio %.4g ratio", all.p99.Seconds()/apart.p99.Seconds())
	b.Logf("figure pool_reply_p99_default_ratio %.4g ratio", all.p99.Seconds()/byDefault.p99.Seconds())
	b.Logf("figure pool_hogs_loss_pct %.3g %%", 100*(1-all.work/apart.work))
}

// besides is what a network thread and the hogs beside it did.
type besides struct {
	p99 time.Duration
	// work of the hogs.
	work float64
}

func besideHogs(b *testing.B, h *Host, on, client units.CPUSet, slice time.Duration) besides {
	b.Helper()
	const hogs, requests, every = 3, 600, 7 * time.Millisecond
	var (
		work    atomic.Int64
		ends    atomic.Bool
		running sync.WaitGroup
	)
	started := make(chan struct{}, hogs+1)
	bound := func(cpus units.CPUSet, slice time.Duration, do func()) {
		running.Go(func() {
			runtime.LockOSThread() // and ends with it
			id, err := threadID()
			if err == nil {
				err = h.SetAffinity(id, cpus)
			}
			if err == nil && slice > 0 {
				err = h.SetSlice(id, slice)
			}
			if err != nil {
				b.Error(err)
			}
			started <- struct{}{}
			do()
		})
	}
	for range hogs {
		bound(on, slice, func() {
			for !ends.Load() {
				spin(20 * time.Microsecond)
				work.Add(1)
			}
		})
	}
	ask, asked := pipe(b)
	answer, answered := pipe(b)
	bound(on, time.Millisecond, func() {
		var one [1]byte
		for {
			if n, _ := asked.Read(one[:]); n == 0 {
				return
			}
			spin(100 * time.Microsecond)
			_, _ = answer.Write(one[:])
		}
	})
	for range hogs + 1 {
		<-started
	}
	took := make([]time.Duration, requests)
	before := work.Load()
	bound(client, 0, func() {
		var one [1]byte
		tick := time.NewTicker(every)
		defer tick.Stop()
		for i := range took {
			<-tick.C
			began := time.Now()
			_, _ = ask.Write(one[:])
			_, _ = answered.Read(one[:])
			took[i] = time.Since(began)
		}
		ends.Store(true)
		ask.Close()
	})
	<-started
	began := time.Now()
	running.Wait()
	slices.Sort(took)
	return besides{p99: took[requests*99/100], work: float64(work.Load()-before) / time.Since(began).Seconds()}
}

// threadID is that of the calling thread.
func threadID() (host.TaskID, error) {
	id := host.TaskID{PID: os.Getpid(), TID: unix.Gettid()}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/stat", id.TID))
	if err == nil {
		_, id.Start, err = parseStat(stat)
	}
	return id, err
}

// spin uses a CPU for so long of its own time.
func spin(d time.Duration) {
	var began, now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &began)
	for now = began; now.Nano()-began.Nano() < d.Nanoseconds(); {
		_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now)
	}
}

func pipe(b *testing.B) (write, read *os.File) {
	b.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil { // blocks: a thread waits itself
		b.Fatal(err)
	}
	return os.NewFile(uintptr(fds[1]), "pipe"), os.NewFile(uintptr(fds[0]), "pipe")
}
