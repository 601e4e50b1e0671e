package launcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/digitalocean/go-libvirt"
	"github.com/prometheus/procfs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func checkProcesses(t *testing.T, s *Sandbox, podUID string) {
	comms := threadComms(t, s.QEMUPID())
	for _, want := range []string{"CPU 0/TCG", "CPU 1/TCG"} {
		if !slices.Contains(comms, want) {
			t.Errorf("QEMU's threads %q lack %q", comms, want)
		}
	}
	for line := range strings.Lines(read(t, procPath(s.QEMUPID(), "cgroup"))) {
		if want := "/kubepods/burstable/pod" + podUID + "/" + s.ContainerID() + "\n"; !strings.HasSuffix(line, want) {
			t.Errorf("QEMU's cgroup %q does not end in %q", line, want)
		}
	}
	if cmdline := read(t, procPath(s.QEMUPID(), "cmdline")); !strings.Contains(cmdline, "-name\x00guest=shop_web,") {
		t.Errorf("QEMU's command line does not name its guest: %q", cmdline)
	}
	monitor := read(t, procPath(s.LauncherPID(), "cmdline"))
	if !strings.HasPrefix(monitor, "/usr/bin/virt-launcher-monitor\x00") || !strings.Contains(monitor, "\x00--name\x00web\x00--uid\x00vmi-"+podUID+"\x00--namespace\x00shop\x00") {
		t.Errorf("virt-launcher-monitor's command line is %q", monitor)
	}
	if comm := read(t, procPath(s.LauncherPID(), "comm")); comm != "virt-launcher-m\n" {
		t.Errorf("virt-launcher-monitor's name is %q", comm)
	}
}

func threadComms(t *testing.T, pid int) []string {
	t.Helper()
	threads, err := procfs.AllThreads(pid)
	if err != nil {
		t.Fatal(err)
	}
	var comms []string
	for _, thread := range threads {
		comm, err := thread.Comm()
		if err != nil {
			t.Fatal(err)
		}
		comms = append(comms, comm)
	}
	return comms
}

func checkNamespaces(t *testing.T, s *Sandbox) {
	for _, kind := range []string{"mnt", "net", "pid", "ipc", "uts"} {
		link := func(pid int) string {
			target, err := os.Readlink(procPath(pid, "ns/"+kind))
			if err != nil {
				t.Fatal(err)
			}
			return target
		}
		if qemu, launcher := link(s.QEMUPID()), link(s.LauncherPID()); qemu != launcher {
			t.Errorf("%s: QEMU has %s, its launcher %s", kind, qemu, launcher)
		}
		if own := link(os.Getpid()); own == link(s.LauncherPID()) {
			t.Errorf("%s: the pod shares the host's %s", kind, own)
		}
	}
}

// checkThreads wants no thread of this process left in a pod's network: Go
// never ends the first one, and it would keep the namespace alive.
func checkThreads(t *testing.T, s *Sandbox) {
	pod, err := os.Readlink(procPath(s.LauncherPID(), "ns/net"))
	if err != nil {
		t.Fatal(err)
	}
	threads, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil || len(threads) == 0 {
		t.Fatalf("this process has the threads %v, %v", threads, err)
	}
	for _, thread := range threads {
		if namespace, err := os.Readlink(thread); err == nil && namespace == pod {
			t.Errorf("%s is in the pod's network", thread)
		}
	}
}

func checkShares(t *testing.T, s *Sandbox) {
	for _, h := range s.runtime.hierarchies {
		if !h.has("cpu") {
			continue
		}
		file, want := "cpu.shares", "256\n"
		if h.unified {
			file, want = "cpu.weight", "10\n"
		}
		if got := read(t, filepath.Join(h.mount, filepath.Join(s.names.CgroupNames...), file)); got != want {
			t.Errorf("%s of a pod that asks for 250m is %q, not %q", file, got, want)
		}
		return
	}
	t.Error("no hierarchy has the cpu controller")
}

// checkClassWeight wants the class of the pods to weigh what its pods do together,
// those of other runs on this host included.
func checkClassWeight(t *testing.T, r *Runtime, names []string) {
	for _, h := range r.hierarchies {
		if !h.has("cpu") {
			continue
		}
		// Another run may start or end a pod meanwhile.
		eventually(t, bootDeadline, func() error {
			class := filepath.Join(h.mount, names[0], names[1])
			got, err := h.shares(class)
			if err != nil {
				return err
			}
			pods, err := filepath.Glob(filepath.Join(class, "pod*"))
			if err != nil {
				return err
			}
			var sum uint64
			for _, pod := range pods {
				shares, err := h.shares(pod)
				if err != nil {
					return err
				}
				sum += shares
			}
			if got != sum || len(pods) == 0 {
				return fmt.Errorf("%s weighs %d, its %d pods weigh %d", class, got, len(pods), sum)
			}
			return nil
		})
	}
}

// signalLibvirt sends a signal to the pod's libvirtd.
func signalLibvirt(t *testing.T, s *Sandbox, signal unix.Signal) {
	t.Helper()
	pids, err := containerProcesses(s.runtime.hierarchies, s.names.CgroupNames)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if read(t, procPath(pid, "comm")) != "libvirtd\n" {
			continue
		}
		if err := unix.Kill(pid, signal); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("no libvirtd among the pod's processes %v", pids)
}

func checkLibvirtRestart(t *testing.T, s *Sandbox) {
	signalLibvirt(t, s, unix.SIGKILL)
	eventually(t, patience, func() error {
		conn := libvirt.NewWithDialer(contextDialer{ctx: testContext(t), path: hostSocketPath(s.LauncherPID())})
		if err := conn.ConnectToURI(libvirt.QEMUSystem); err != nil {
			return err
		}
		domain, err := conn.DomainLookupByName("shop_web")
		if err != nil {
			return err
		}
		if state, _, err := conn.DomainGetState(domain, 0); err != nil || libvirt.DomainState(state) != libvirt.DomainRunning {
			return fmt.Errorf("the domain is in state %d, %w", state, err)
		}
		return conn.Disconnect()
	})
}

func checkLibvirt(t *testing.T, s *Sandbox) {
	conn := libvirt.NewWithDialer(contextDialer{ctx: testContext(t), path: hostSocketPath(s.LauncherPID())})
	if err := conn.ConnectToURI(libvirt.QEMUSystem); err != nil {
		t.Fatal(err)
	}
	domain, err := conn.DomainLookupByName("shop_web")
	if err != nil {
		t.Fatal(err)
	}
	vcpus, _, err := conn.DomainGetVcpus(domain, 2, 1)
	if err != nil || len(vcpus) != 2 {
		t.Errorf("libvirt tells of %d vCPUs (error %v), not of 2", len(vcpus), err)
	}
	stats, err := conn.ConnectGetAllDomainStats(nil, uint32(libvirt.DomainStatsVCPU|libvirt.DomainStatsInterface), 0)
	if err != nil || len(stats) != 1 {
		t.Fatalf("libvirt gives statistics of %d domains (error %v), not of 1", len(stats), err)
	}
	var fields []string
	for _, parameter := range stats[0].Params {
		fields = append(fields, parameter.Field)
	}
	for _, want := range []string{"vcpu.1.time", "vcpu.1.delay", "net.0.rx.bytes"} {
		if !slices.Contains(fields, want) {
			t.Errorf("the statistics %q lack %s", fields, want)
		}
	}
	if err := conn.Disconnect(); err != nil {
		t.Error(err)
	}
}

func checkEcho(t *testing.T, s *Sandbox) {
	conn, err := net.Dial("udp4", net.JoinHostPort(s.IP(), "7"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 16)
	if n, err := conn.Read(answer); err != nil || string(answer[:n]) != "ping" {
		t.Errorf("the guest echoed %q, %v", answer[:n], err)
	}
}

// vcpuSeconds is the CPU time that QEMU's vCPU threads have used.
func vcpuSeconds(t *testing.T, s *Sandbox) float64 {
	t.Helper()
	threads, err := procfs.AllThreads(s.QEMUPID())
	if err != nil {
		t.Fatal(err)
	}
	total := 0.0
	for _, thread := range threads {
		stat, err := thread.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(stat.Comm, "CPU ") {
			total += stat.CPUTime()
		}
	}
	return total
}

func checkBurn(t *testing.T, s *Sandbox) {
	const enough = 0.5 // seconds; an idle guest uses some hundredths
	before := vcpuSeconds(t, s)
	if err := s.GuestBurn(testContext(t), 2, 60); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() error {
		if used := vcpuSeconds(t, s) - before; used < enough {
			return fmt.Errorf("the vCPUs used %.2f s, less than %.2f", used, enough)
		}
		return nil
	})
	if err := s.GuestBurn(testContext(t), 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.GuestBurn(testContext(t), -1, 1); err == nil {
		t.Error("the guest took -1 workers")
	}
}

func checkCPUSet(t *testing.T, s *Sandbox) {
	var own unix.CPUSet
	if err := unix.SchedGetaffinity(0, &own); err != nil {
		t.Fatal(err)
	}
	first := 0
	for !own.IsSet(first) {
		first++
	}
	allowed := func() string {
		status, err := procfs.NewProc(s.QEMUPID())
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := status.NewStatus()
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(parsed.CpusAllowedList)
	}
	before := allowed()
	narrow := fmt.Sprint(first)
	if err := s.SetCPUSet(narrow); err != nil {
		t.Fatal(err)
	}
	if got, want := allowed(), fmt.Sprint([]uint64{uint64(first)}); got != want {
		t.Errorf("QEMU may run on %s after the cpuset became %s", got, narrow)
	}
	if err := s.SetCPUSet(onlineCPUs(t)); err != nil {
		t.Fatal(err)
	}
	if got := allowed(); got != before {
		t.Errorf("QEMU may run on %s after the cpuset was widened, before on %s", got, before)
	}
	if err := s.SetCPUSet("4000"); err == nil {
		t.Error("a cpuset of a CPU that does not exist was accepted")
	}
}

func onlineCPUs(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(read(t, "/sys/devices/system/cpu/online"))
}

func checkStop(t *testing.T, s *Sandbox) {
	pids, err := containerProcesses(s.runtime.hierarchies, s.names.CgroupNames)
	if err != nil || len(pids) < 4 {
		t.Fatalf("the pod has the processes %v, %v", pids, err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		if err := s.Stop(cancelled); err != nil {
			t.Fatal(err)
		}
	}
	if s.QEMUPID() != 0 {
		t.Error("a stopped pod still tells of a QEMU")
	}
	checkGone(t, pids, s.names, s.runtime.hierarchies)
	if mounts := read(t, "/proc/self/mounts"); strings.Contains(mounts, s.dir) {
		t.Errorf("the host has mounts of the pod: %s", mounts)
	}
	if _, err := os.Stat(s.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the pod's folder is left: %v", err)
	}
}

// runs reports whether a process exists that has not ended. One that its parent
// has yet to collect has: the host's first process may take its time.
func runs(pid int) bool {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return false
	}
	stat, err := process.Stat()
	return err == nil && stat.State != "Z"
}

// checkGone wants none of a pod's processes, cgroups and links.
func checkGone(t *testing.T, pids []int, names podRecord, hierarchies []hierarchy) {
	t.Helper()
	for _, pid := range pids {
		if runs(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
	podLevel := filepath.Join(names.CgroupNames[:len(names.CgroupNames)-1]...)
	for _, h := range hierarchies {
		if _, err := os.Stat(filepath.Join(h.mount, podLevel)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("cgroup %s is left in %s: %v", podLevel, h.mount, err)
		}
	}
	if _, err := netlink.LinkByName(names.HostVeth); !errors.As(err, &netlink.LinkNotFoundError{}) {
		t.Errorf("link %s is left: %v", names.HostVeth, err)
	}
}
