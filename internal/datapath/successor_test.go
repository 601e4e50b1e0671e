package datapath

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/model"
)

// holder is a process that has the packets of a device held, for as long as it is told,
// and then idles.
const holderVariable = "JOULEVIRT_TEST_HOLDER"

type holderJob struct {
	Device                     string
	PinRoot                    string
	WithoutTCX, WithoutQueue   bool
	Window, FloodWindow, Valid time.Duration
}

func init() {
	text, is := os.LookupEnv(holderVariable)
	if !is {
		return
	}
	if err := hold(text); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ready")
	for { // until it is killed: a select without cases ends it, as a deadlock
		_ = unix.Pause()
	}
}

func hold(text string) error {
	var job holderJob
	if err := json.Unmarshal([]byte(text), &job); err != nil {
		return err
	}
	runtime.LockOSThread()
	const namespace = 3
	if err := unix.Setns(namespace, unix.CLONE_NEWNET); err != nil {
		return err
	}
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	device, err := handle.LinkByName(job.Device)
	if err != nil {
		return err
	}
	d := New(Options{PinRoot: job.PinRoot, WithoutTCX: job.WithoutTCX, withoutQueue: job.WithoutQueue})
	c := ConfigOf(model.Buffering{Window: job.Window, FloodWindow: job.FloodWindow, OnPackets: 1})
	return errors.Join(d.Apply(handle, device, testID, c), d.Extend(job.Valid))
}

// holdAndKill has another process hold the packets of a device. What it returns ends that
// process without a warning.
func (w *world) holdAndKill(job holderJob) (kill func()) {
	w.t.Helper()
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	text, err := json.Marshal(job)
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = []string{holderVariable + "=" + string(text)}
	cmd.Stderr = os.Stderr
	var namespace *os.File
	w.Do(func() (err error) {
		namespace, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	defer namespace.Close()
	cmd.ExtraFiles = []*os.File{namespace}
	output, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	ended := false
	kill = func() {
		if !ended {
			ended = true
			_ = cmd.Process.Kill() // it may have ended by itself
			_ = cmd.Wait()
		}
	}
	w.t.Cleanup(kill)
	if lines := bufio.NewScanner(output); !lines.Scan() || lines.Text() != "ready" {
		w.t.Fatalf("the process that is to be killed: %s", lines.Text())
	}
	return kill
}

func holderOf(opts Options) holderJob {
	return holderJob{
		Device: "tap0", PinRoot: opts.PinRoot, WithoutTCX: opts.WithoutTCX, WithoutQueue: opts.withoutQueue,
		Window: time.Millisecond, Valid: time.Minute,
	}
}

func TestKilledHoldersProgramsAreTakenOver(t *testing.T) {
	ways(t, func(t *testing.T, opts Options) {
		w := newWorld(t)
		p := w.newTap("tap0", 1)
		before := w.dump()
		kill := w.holdAndKill(holderOf(opts))
		p.send(1, 1)
		kill()
		held := w.dump()
		p.send(1, 2)
		d := newDatapath(t, opts)
		taken := w.attached(d, "tap0")
		if opts.PinRoot == "" {
			if taken {
				t.Error("taken over without pins")
			}
		} else {
			if !taken {
				t.Fatal("not taken over")
			}
			if n := counted(t, d); n != 2 {
				t.Errorf("what is taken over counted %d packets, want 2", n)
			}
		}
		w.apply(d, "tap0", eager(time.Millisecond))
		p.send(1, 3)
		want := uint64(1)
		if taken {
			want = 3
			if diff := cmp.Diff(held, w.dump()); diff != "" {
				t.Errorf("taking over changed the device (-before +after):\n%s", diff)
			}
		}
		if n := counted(t, d); n != want {
			t.Errorf("counted %d packets, want %d", n, want)
		}
		w.remove(d, "tap0")
		wantAsBefore(t, w, before)
	})
}

// A successor that only removes need not have applied anything.
func TestKilledHoldersProgramsAreRemoved(t *testing.T) {
	ways(t, func(t *testing.T, opts Options) {
		w := newWorld(t)
		w.newTap("tap0", 1)
		before := w.dump()
		w.holdAndKill(holderOf(opts))()
		d := newDatapath(t, opts)
		w.remove(d, "tap0")
		wantAsBefore(t, w, before)
	})
}

// pinnedOnly are the ways that keep something.
func pinnedOnly(t *testing.T, test func(*testing.T, Options)) {
	ways(t, func(t *testing.T, opts Options) {
		if opts.PinRoot != "" {
			test(t, opts)
		}
	})
}

func TestOtherVersionIsReplaced(t *testing.T) {
	pinnedOnly(t, func(t *testing.T, opts Options) {
		for name, act := range map[string]func(*world, *Datapath){
			"by another program": func(w *world, d *Datapath) { w.apply(d, "tap0", eager(time.Millisecond)) },
			"by nothing":         func(*world, *Datapath) {},
		} {
			t.Run(name, func(t *testing.T) {
				w := newWorld(t)
				p := w.newTap("tap0", 1)
				before := w.dump()
				w.holdAndKill(holderOf(opts))()
				versions := opts.PinRoot + "/" + testID + "/" + pinProgram
				entries, err := os.ReadDir(versions)
				if err != nil || len(entries) != 1 {
					t.Fatalf("pinned are %v, %v", entries, err)
				}
				if err := os.Rename(versions+"/"+entries[0].Name(), versions+"/earlier"); err != nil {
					t.Fatal(err)
				}
				d := New(opts)
				if w.attached(d, "tap0") {
					t.Error("another version's is taken over")
				}
				act(w, d)
				if name == "by another program" {
					p.send(1, 1)
					if n := counted(t, d); n != 1 || !w.attached(d, "tap0") {
						t.Errorf("the new program is not at work: counted %d", n)
					}
					if names := programNames(w); len(names) != 2 {
						t.Errorf("at work are %v, want two programs", names)
					}
				}
				w.remove(d, "tap0")
				wantAsBefore(t, w, before)
				if err := d.Close(); err != nil {
					t.Error(err)
				}
				if _, err := os.Stat(opts.PinRoot); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("pins are left: %v", err)
				}
			})
		}
	})
}

// programNames are the lines of a dump that tell of attached programs.
func programNames(w *world) (names []string) {
	for _, line := range w.dump() {
		if strings.Contains(line, "  bpf ") || strings.Contains(line, " program ") {
			names = append(names, line)
		}
	}
	return names
}

// A tap that was made anew has the same name, and nothing of what the one before had.
func TestDeviceIsMadeAnew(t *testing.T) {
	for name, restart := range map[string]bool{"seen": false, "while there was no agent": true} {
		t.Run(name, func(t *testing.T) {
			ways(t, func(t *testing.T, opts Options) {
				w := newWorld(t)
				p := w.newTap("tap0", 1)
				before := w.dump()
				d := New(opts)
				w.apply(d, "tap0", eager(time.Millisecond))
				p.send(1, 1)
				if restart {
					if err := d.Close(); err != nil {
						t.Fatal(err)
					}
					d = New(opts)
				}
				defer func() {
					if err := d.Close(); err != nil {
						t.Error(err)
					}
				}()
				p.close()
				p = w.newTap("tap0", 1)
				if w.attached(d, "tap0") {
					t.Error("attached to a device that was made anew")
				}
				if ids, err := d.IDs(); err != nil || len(ids) > 0 {
					t.Errorf("kept of the old device: %v, %v", ids, err)
				}
				w.apply(d, "tap0", eager(time.Millisecond))
				p.send(1, 1)
				p.send(1, 2)
				if n := counted(t, d); n != 2 || !w.attached(d, "tap0") {
					t.Errorf("counted %d packets of the new device, want 2", n)
				}
				w.remove(d, "tap0")
				wantAsBefore(t, w, before)
			})
		})
	}
}

// A successor has packets held before it has looked at any device, and where nothing is
// kept it makes no lease.
func TestSuccessorExtendsTheLeaseAtOnce(t *testing.T) {
	pinnedOnly(t, func(t *testing.T, opts Options) {
		d := newDatapath(t, opts)
		if err := d.Extend(time.Hour); err != nil || d.pins.haveLease() {
			t.Errorf("with nothing to hold: %v, a lease: %v", err, d.pins.haveLease())
		}
		w := newWorld(t)
		w.newTap("tap0", 1)
		w.holdAndKill(holderOf(opts))()
		now, err := monotonic()
		if err == nil {
			err = d.Extend(time.Hour)
		}
		if err != nil {
			t.Fatal(err)
		}
		if until, err := d.lease.read(); err != nil || until < now+time.Hour {
			t.Errorf("the lease lasts until %v, %v; now it is %v", until, err, now)
		}
		w.remove(d, "tap0")
	})
}

func TestDeviceThatIsGoneIsForgotten(t *testing.T) {
	pinnedOnly(t, func(t *testing.T, opts Options) {
		w := newWorld(t)
		p := w.newTap("tap0", 1)
		w.holdAndKill(holderOf(opts))()
		p.close()
		d := New(opts)
		if ids, err := d.IDs(); err != nil || !cmp.Equal(ids, []string{testID}) {
			t.Errorf("kept are %v, %v", ids, err)
		}
		if err := errors.Join(d.Forget(testID), d.Forget(testID), d.Close()); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(opts.PinRoot); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("pins are left: %v", err)
		}
	})
}

func TestPinsNeedABPFFileSystem(t *testing.T) {
	dir := t.TempDir()
	for root, want := range map[string]string{
		"": "no BPF file system is given", dir + "/joulevirt": "is not in a BPF file system", "/proc/nowhere": "programs are not kept",
	} {
		w := newWorld(t)
		w.newTap("tap0", 1)
		before := w.dump()
		d := newDatapath(t, Options{PinRoot: root, withoutQueue: true})
		if err := d.MissesPins(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("pins in %q: %v, want %s", root, err, want)
		}
		w.apply(d, "tap0", eager(time.Millisecond))
		if !w.attached(d, "tap0") {
			t.Error("not attached without pins")
		}
		w.remove(d, "tap0")
		wantAsBefore(t, w, before)
	}
}

// Without its file system nothing is put on a device; with it again all is as ever.
func TestPinsAreUnmounted(t *testing.T) {
	w := newWorld(t)
	w.newTap("tap0", 1)
	before := w.dump()
	root := newPinRoot(t)
	d := newDatapath(t, Options{PinRoot: root, withoutQueue: true})
	dir := filepath.Dir(root)
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
	w.on("tap0", func(handle *netlink.Handle, device netlink.Link) error {
		err := d.Apply(handle, device, testID, eager(time.Millisecond))
		if err == nil || !strings.Contains(err.Error(), "is not in a BPF file system: mount one there") {
			t.Errorf("without the file system: %v", err)
		}
		return d.Remove(handle, device, testID)
	})
	wantAsBefore(t, w, before)
	if err := unix.Mount("bpf", dir, "bpf", 0, "mode=0700"); err != nil {
		t.Fatal(err)
	}
	w.apply(d, "tap0", eager(time.Millisecond))
	if !w.attached(d, "tap0") {
		t.Error("not attached")
	}
	w.remove(d, "tap0")
	wantAsBefore(t, w, before)
}
