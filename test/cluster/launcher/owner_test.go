package launcher

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ownerEnvironment makes this test program the owner of one VM, with the cache
// that it names.
const ownerEnvironment = "LAUNCHER_TEST_OWNER_CACHE"

// ownerReport is what such a process says about its pod.
type ownerReport struct {
	PIDs   []int
	Pod    podRecord
	Bridge string
	Folder string
}

// ownUntilKilled starts a VM, reports on standard output, and waits.
func ownUntilKilled() int {
	report, err := ownVM()
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(report)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	select {}
}

func ownVM() (ownerReport, error) {
	ctx, cancel := context.WithTimeout(context.Background(), bootDeadline)
	defer cancel()
	r, err := New(ctx, Options{CacheDir: os.Getenv(ownerEnvironment)})
	if err != nil {
		return ownerReport{}, err
	}
	pod, vmi := launcherPod("orphan", "5d3f6bd0-7a1c-4c0e-9f3b-2f1f6f1f0a02", 1)
	s, err := r.StartPod(ctx, pod)
	if err != nil {
		return ownerReport{}, err
	}
	if err := s.StartDomain(ctx, vmi); err != nil {
		return ownerReport{}, err
	}
	pids, err := containerProcesses(r.hierarchies, s.names.CgroupNames)
	return ownerReport{PIDs: pids, Pod: s.names, Bridge: r.record.Bridge, Folder: r.folder.path}, err
}

// The living's run goes first, so that cleaning up after the dead is seen not
// to touch it.
func TestKilledOwner(t *testing.T) {
	living := newRuntime(t, Options{})
	pod, _ := launcherPod("living", "5d3f6bd0-7a1c-4c0e-9f3b-2f1f6f1f0a03", 1)
	survivor, err := living.StartPod(testContext(t), pod)
	if err != nil {
		t.Fatal(err)
	}

	report := killOwner(t)
	eventually(t, patience, func() error {
		for _, pid := range report.PIDs {
			if runs(pid) {
				return fmt.Errorf("process %d outlives its owner", pid)
			}
		}
		return nil
	})

	newRuntime(t, Options{})
	checkGone(t, report.PIDs, report.Pod, living.hierarchies)
	if _, err := netlink.LinkByName(report.Bridge); !errors.As(err, &netlink.LinkNotFoundError{}) {
		t.Errorf("bridge %s is left: %v", report.Bridge, err)
	}
	if _, err := os.Stat(report.Folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("folder %s is left: %v", report.Folder, err)
	}

	select {
	case <-survivor.Exited():
		t.Error("the pod of a living owner was ended")
	default:
	}
	if _, err := netlink.LinkByName(living.record.Bridge); err != nil {
		t.Errorf("the bridge of a living owner: %v", err)
	}
}

// killOwner starts this program as an owner, kills it once its VM runs, and
// returns what it owned.
func killOwner(t *testing.T) ownerReport {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), ownerEnvironment+"="+sharedCache)
	cmd.Stderr = os.Stderr
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, readErr := bufio.NewReader(output).ReadBytes('\n')
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed, as just asked for
	if readErr != nil {
		t.Fatalf("the owner did not start its VM: %v", readErr)
	}
	var report ownerReport
	if err := json.Unmarshal(line, &report); err != nil {
		t.Fatal(err)
	}
	if len(report.PIDs) < 5 {
		t.Fatalf("the owner's pod has the processes %v only", report.PIDs)
	}
	return report
}

func TestCancelledStartLeavesNothing(t *testing.T) {
	r := newRuntime(t, Options{})
	pod, _ := launcherPod("cancelled", "5d3f6bd0-7a1c-4c0e-9f3b-2f1f6f1f0a04", 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.StartPod(ctx, pod); !errors.Is(err, context.Canceled) {
		t.Fatalf("a cancelled start returned %v", err)
	}
	if len(r.record.Pods) != 0 || r.Pod(pod.UID) != nil {
		t.Errorf("the run still knows the pod: %v", r.record.Pods)
	}
	// The same pod may be tried again.
	s, err := r.StartPod(testContext(t), pod)
	if err != nil {
		t.Fatal(err)
	}
	names := s.names
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkGone(t, nil, names, r.hierarchies)
}

func TestSilentLibvirt(t *testing.T) {
	r := newRuntime(t, Options{})
	pod, vmi := launcherPod("silent", "5d3f6bd0-7a1c-4c0e-9f3b-2f1f6f1f0a09", 1)
	s, err := r.StartPod(testContext(t), pod)
	if err != nil {
		t.Fatal(err)
	}
	signalLibvirt(t, s, unix.SIGSTOP)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := s.StartDomain(ctx, vmi); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a VM was started by a libvirt that sleeps: %v", err)
	}
	if pid := s.QEMUPID(); pid != 0 {
		t.Errorf("QEMU's PID is %d without a VM", pid)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// Four VMs on two runtimes, whose pods a systemd node would name.
func TestSeveralVMs(t *testing.T) {
	uids := []string{
		"5d3f6bd0-7a1c-4c0e-9f3b-2f1f6f1f0a05", "5d3f6bd0-7a1c-4c0e-9f3b-2f1f6f1f0a06",
		"5d3f6bd0-7a1c-4c0e-9f3b-2f1f6f1f0a07", "5d3f6bd0-7a1c-4c0e-9f3b-2f1f6f1f0a08",
	}
	runtimes := []*Runtime{
		newRuntime(t, Options{CgroupDriver: Systemd}),
		newRuntime(t, Options{CgroupDriver: Systemd, CPUSet: "0"}),
	}
	t.Run("group", func(t *testing.T) {
		for i, uid := range uids {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				pod, vmi := launcherPod(fmt.Sprint("vm", i), uid, 1)
				s := boot(t, runtimes[i%2], pod, vmi)
				checkSystemdCgroup(t, s, uid)
			})
		}
	})
}

func checkSystemdCgroup(t *testing.T, s *Sandbox, podUID string) {
	t.Helper()
	slice := "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + strings.ReplaceAll(podUID, "-", "_") + ".slice"
	want := slice + "/cri-containerd-" + s.ContainerID() + ".scope\n"
	for line := range strings.Lines(read(t, procPath(s.QEMUPID(), "cgroup"))) {
		if !strings.HasSuffix(line, want) {
			t.Errorf("QEMU's cgroup %q does not end in %q", line, want)
		}
	}
}
