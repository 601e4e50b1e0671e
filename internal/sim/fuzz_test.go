package sim

import (
	"math"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
)

// FuzzHost does what the input says, two bytes a time, and checks what holds of
// every host: counters are finite and never fall, threads run no longer than
// time passes, affinities lie within cpusets, and power stays in bounds.
func FuzzHost(f *testing.F) {
	f.Add([]byte("a\x01t\x09s\x05a\x02p\x03s\x20b\x04s\x05r\x00s\x01"))
	f.Add([]byte("a\xffa\xfea\xfdu\xffs\xfft\xffs\xffc\x03p\xffs\xffw\xffs\x01"))
	f.Add([]byte("u\x10s\x10u\x00s\x10m\x01s\x05m\x02s\x05m\x03s\x05m\x00s\x05"))
	f.Add([]byte("a\x01a\x02w\xffw\xfet\x20l\x01l\x1eh\x01p\x00u\xffs\x10l\x00s\x10r\x00s\x01"))
	f.Fuzz(func(t *testing.T, program []byte) {
		if len(program) > 200 {
			return
		}
		h := server(t, func(c *Config) {
			c.Shape = Shape{CoresPerPackage: 4, ThreadsPerCore: 2}
			c.Isolated = units.NewCPUSet(3)
			c.Meter.Range = 1 << 40
		})
		checks := invariants{Host: h, last: map[host.TaskID]host.ThreadSample{}}
		for i := 0; i+1 < len(program); i += 2 {
			interpret(h, program[i], program[i+1])
			if program[i] == 's' {
				checks.look(t, time.Duration(program[i+1])*100*time.Millisecond)
			}
		}
	})
}

// interpret does one thing. What is refused is refused.
func interpret(h *Host, what, how byte) {
	n := int(how)
	pod := ""
	var v *vm
	if len(h.vms) > 0 {
		v = h.vms[n%len(h.vms)]
		pod = v.PodUID
	}
	set := units.NewCPUSet(n%8, n/8%8)
	switch {
	case what == 'a':
		_, _ = h.AddVM(VM{Namespace: "a", Name: "b", PodUID: string(rune('a' + n)), VCPUs: n % 5, Weight: float64(n * n), IOThreads: n % 3, Userland: n%7 == 0})
	case what == 'u':
		_ = h.SetUnmanaged(Unmanaged{Compute: Compute{Cores: units.Cores(n) / 8, Heat: float64(n) / 64}, CPUs: set})
	case what == 'm':
		h.SetFault(Fault(n % 6))
	case v == nil:
	case what == 'r':
		_ = h.RemoveVM(pod)
	case what == 't':
		rate := units.BitsPerSecond(n*n) * mbit
		_ = h.SetTraffic(pod, Traffic{ToVM: rate, FromVM: rate / 3, PacketBytes: n * 7, Programme: Programme{Pattern: Pattern(n % 3), Swing: float64(n%10) / 9}})
	case what == 'w':
		_ = h.SetCompute(pod, Compute{Cores: units.Cores(n) / 20, Heat: float64(n % 4), Programme: Programme{Pattern: Pattern(n % 3)}})
	case what == 'b':
		_ = h.SetBuffering(pod, time.Duration(n)*10*time.Microsecond)
	case what == 'c':
		_ = h.SetCpuset(pod, set)
	case what == 'p':
		for i := range v.threads {
			_ = h.SetAffinity(v.threads[i].id, set)
		}
	case what == 'l':
		_ = h.SetSlice(v.threads[n%len(v.threads)].id, time.Duration(n)*time.Millisecond)
	case what == 'h':
		_, _ = h.AddVCPU(pod)
	case what == 'f':
		_ = h.ClearAffinity(v.threads[n%len(v.threads)].id)
	}
}

// invariants are what holds of every host.
type invariants struct {
	*Host
	last map[host.TaskID]host.ThreadSample
}

func (i *invariants) look(t *testing.T, step time.Duration) {
	i.Advance(step)
	seen := read(t, i.Host)
	const jitter = time.Microsecond // of rounding
	for n, sample := range seen.Samples {
		cpuset, err := i.Cpuset(seen.Processes[n].ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, now := range sample.Threads {
			was := i.last[now.ID]
			ran, waited := now.Run-was.Run, now.Wait-was.Wait
			if ran < 0 || waited < 0 || now.Switches < was.Switches || ran+waited > step+jitter {
				t.Fatalf("in %v thread %+v became %+v", step, was, now)
			}
			if now.CPUs.IsEmpty() || !now.CPUs.IsSubsetOf(cpuset) {
				t.Fatalf("thread on %s with cpuset %s", now.CPUs, cpuset)
			}
			i.last[now.ID] = now
		}
	}
	for _, zone := range seen.Zones {
		if zone.Microjoules >= i.cfg.Meter.Range {
			t.Fatalf("counter %+v", zone)
		}
	}
	truth := seen.Truth
	if step > 0 && (!(truth.Packages > 0 && truth.Packages < 2000) || !(truth.Celsius > 0 && truth.Celsius < 1000) || !(truth.Platform > truth.Packages)) {
		t.Fatalf("truth %+v", truth)
	}
	for _, process := range i.vms {
		truth, err := i.VMTruth(process.PodUID)
		if err != nil {
			t.Fatal(err)
		}
		if !(truth.Served >= 0 && truth.Served <= 1) || math.IsNaN(float64(truth.Marginal)) || !(truth.Knee >= 0) {
			t.Fatalf("truth of a VM %+v", truth)
		}
	}
}
