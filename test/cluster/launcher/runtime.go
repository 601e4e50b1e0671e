// Package launcher runs real QEMU VMs the way KubeVirt's virt-launcher pods do,
// on a host without a container engine: a container with its own mount, PID and
// network namespaces in a kubepods cgroup, libvirt inside it, a masquerade
// network, and a small Linux guest. It needs root, Debian's libvirt and QEMU.
//
// What differs from KubeVirt: libvirt is Debian's monolithic libvirtd with the
// QEMU driver only; the guest's memory is capped; pods have IPv4 only; there is
// one container per pod and no limit on its memory or CPU time, since an
// emulated VM needs more of both than the pod asks for.
//
// Everything ends with the owning process, also when that is killed; what then
// remains (empty cgroups, links, files) is removed by the next New.
package launcher

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/joulevirt/joulevirt/test/cluster/launcher/internal/container"
	"github.com/joulevirt/joulevirt/test/guest"
	"github.com/joulevirt/joulevirt/test/guest/gobuild"
)

const (
	launcherPackage = "github.com/joulevirt/joulevirt/test/cluster/launcher/virt-launcher"

	// DefaultMaxGuestMemory is what the guest needs with room to spare: it
	// boots with 96 MiB.
	DefaultMaxGuestMemory = 128 << 20

	defaultStateDir   = "/run/joulevirt-launcher"
	defaultCgroupRoot = "/sys/fs/cgroup"

	// Links on the host have these names and random digits; the kernel takes
	// up to 15 characters.
	bridgePrefix = "jvlbr"
	vethPrefix   = "jvlve"
	linkDigits   = 10

	// qemuUser is the user that Debian's QEMU runs as.
	qemuUser = "libvirt-qemu"
)

// Options configure a Runtime.
type Options struct {
	// CacheDir keeps built programs and guest images between runs. Required.
	CacheDir string
	// LogDir keeps the launchers' logs and serial consoles, one folder for each
	// pod; empty means they go with the pod.
	LogDir string
	// StateDir is shared by all runs on the host; empty means
	// /run/joulevirt-launcher.
	StateDir string
	// Subnet has the pods' addresses, the first being the host's; zero means a
	// free /24 of 10.254.0.0/16.
	Subnet netip.Prefix
	// CgroupRoot is where the cgroup file systems are mounted, of version 1, 2
	// or both; empty means /sys/fs/cgroup.
	CgroupRoot string
	// CgroupDriver names the pods' cgroups; empty means Cgroupfs.
	CgroupDriver CgroupDriver
	// CPUSet is the containers' cpuset as a CPU list; empty means all CPUs.
	CPUSet string
	// KVM runs the guests under KVM instead of QEMU's emulator.
	KVM bool
	// MaxGuestMemory caps the guests' memory, in bytes; zero means
	// DefaultMaxGuestMemory.
	MaxGuestMemory int64
}

// Runtime starts launcher pods. Its methods may be called concurrently.
type Runtime struct {
	opts        Options
	hierarchies []hierarchy
	image       guest.Image
	program     string
	tapOwner    uint32
	folder      *runFolder

	mu     sync.Mutex
	record record
	pods   map[string]*Sandbox
	last   netip.Addr
}

// New builds what the pods need (some seconds on an empty cache), removes what
// runs with dead owners left on the host, and prepares the pods' network. Close
// undoes it. The working directory must be inside this module.
func New(ctx context.Context, opts Options) (*Runtime, error) {
	if err := opts.complete(); err != nil {
		return nil, err
	}
	r := &Runtime{opts: opts, pods: map[string]*Sandbox{}, record: record{Pods: map[string]podRecord{}}}
	var err error
	if r.hierarchies, err = mountedHierarchies(opts.CgroupRoot); err != nil {
		return nil, err
	}
	if r.tapOwner, err = lookupUser(qemuUser); err != nil {
		return nil, err
	}
	if r.image, err = guest.Build(ctx, guest.Options{CacheDir: opts.CacheDir}); err != nil {
		return nil, err
	}
	r.program = filepath.Join(opts.CacheDir, container.MonitorName)
	if err := gobuild.Static(ctx, launcherPackage, r.program); err != nil {
		return nil, err
	}
	if err := withSharedLock(opts.StateDir, func() error { return r.prepareHost(ctx) }); err != nil {
		return nil, err
	}
	return r, nil
}

func (o *Options) complete() error {
	if o.CacheDir == "" {
		return errors.New("launcher: Options.CacheDir is required")
	}
	if os.Geteuid() != 0 {
		return errors.New("launcher: namespaces, cgroups and links need root: run as root")
	}
	if o.Subnet.IsValid() && !o.Subnet.Addr().Is4() {
		return fmt.Errorf("launcher: Options.Subnet %s is not an IPv4 subnet", o.Subnet)
	}
	if o.StateDir == "" {
		o.StateDir = defaultStateDir
	}
	if o.CgroupRoot == "" {
		o.CgroupRoot = defaultCgroupRoot
	}
	if o.CgroupDriver == "" {
		o.CgroupDriver = Cgroupfs
	}
	if o.MaxGuestMemory == 0 {
		o.MaxGuestMemory = DefaultMaxGuestMemory
	}
	for _, dir := range []*string{&o.CacheDir, &o.LogDir, &o.StateDir} {
		if *dir == "" {
			continue
		}
		absolute, err := filepath.Abs(*dir)
		if err != nil {
			return fmt.Errorf("find folder %s: %w", *dir, err)
		}
		if err := os.MkdirAll(absolute, 0o755); err != nil {
			return fmt.Errorf("create folder %s: %w", absolute, err)
		}
		*dir = absolute
	}
	return nil
}

func lookupUser(name string) (uint32, error) {
	found, err := user.Lookup(name)
	if err != nil {
		return 0, fmt.Errorf("find QEMU's user (install libvirt-daemon-system): %w", err)
	}
	id, err := strconv.ParseUint(found.Uid, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("user ID of %s: %w", name, err)
	}
	return uint32(id), nil
}

// prepareHost makes the run's folder and bridge. The shared lock is held.
func (r *Runtime) prepareHost(ctx context.Context) error {
	if err := removeLeftovers(ctx, r.opts.StateDir, r.hierarchies); err != nil {
		return err
	}
	var err error
	if r.folder, err = newRunFolder(r.opts.StateDir); err != nil {
		return err
	}
	if err = r.prepareNetwork(); err != nil {
		return errors.Join(err, undoRun(ctx, r.folder, r.hierarchies))
	}
	return nil
}

func (r *Runtime) prepareNetwork() error {
	if !r.opts.Subnet.IsValid() {
		subnet, err := freeSubnet()
		if err != nil {
			return err
		}
		r.opts.Subnet = subnet
	}
	r.opts.Subnet = r.opts.Subnet.Masked()
	r.last = r.opts.Subnet.Addr().Next()
	r.record.Bridge = bridgePrefix + randomID()[:linkDigits]
	if err := r.folder.save(r.record); err != nil {
		return err
	}
	return createBridge(r.record.Bridge, r.opts.Subnet)
}

// StartPod starts the pod's launcher and returns when its libvirt answers and
// the pod has an address. The pod needs a namespace, a name and a UID; the
// command of its container "compute", if given, becomes the launcher's command
// line.
func (r *Runtime) StartPod(ctx context.Context, pod *corev1.Pod) (*Sandbox, error) {
	s, err := r.newSandbox(pod)
	if err != nil {
		return nil, err
	}
	if err := s.start(ctx, pod); err != nil {
		err = fmt.Errorf("start the launcher of pod %s/%s: %w%s", pod.Namespace, pod.Name, err, s.logTail())
		return nil, errors.Join(err, s.Stop(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// newSandbox reserves names and an address, and records them.
func (r *Runtime) newSandbox(pod *corev1.Pod) (*Sandbox, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	uid := string(pod.UID)
	if !isFileName(uid) {
		return nil, fmt.Errorf("pod %s/%s: UID %q cannot name a cgroup", pod.Namespace, pod.Name, uid)
	}
	if _, ok := r.pods[uid]; ok {
		return nil, fmt.Errorf("pod %s/%s: already started", pod.Namespace, pod.Name)
	}
	taken := map[netip.Addr]bool{}
	for _, other := range r.pods {
		taken[other.address] = true
	}
	address, err := nextAddress(r.opts.Subnet, r.last, taken)
	if err != nil {
		return nil, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	id := randomID()
	names := podRecord{
		CgroupNames: cgroupNames(r.opts.CgroupDriver, pod.Status.QOSClass, uid, id),
		HostVeth:    vethPrefix + id[:linkDigits],
	}
	r.record.Pods[uid] = names
	if err := r.folder.save(r.record); err != nil {
		delete(r.record.Pods, uid)
		return nil, err
	}
	r.last = address
	s := &Sandbox{runtime: r, podUID: uid, containerID: id, names: names, address: address}
	s.dir = filepath.Join(r.folder.path, uid)
	s.logDir = s.dir
	if r.opts.LogDir != "" {
		s.logDir = filepath.Join(r.opts.LogDir, pod.Namespace+"_"+pod.Name+"_"+uid)
	}
	r.pods[uid] = s
	return s, nil
}

// isFileName reports whether name is one path element that is not hidden.
func isFileName(name string) bool {
	return name != "" && name == filepath.Base(name) && name[0] != '.' && name[0] != '/'
}

// forget drops a pod whose parts are all removed.
func (r *Runtime) forget(podUID string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pods, podUID)
	delete(r.record.Pods, podUID)
	return r.folder.save(r.record)
}

// Close stops all pods and removes what New made. The cache stays.
func (r *Runtime) Close(ctx context.Context) error {
	r.mu.Lock()
	pods := make([]*Sandbox, 0, len(r.pods))
	for _, s := range r.pods {
		pods = append(pods, s)
	}
	r.mu.Unlock()
	var problems []error
	for _, s := range pods {
		problems = append(problems, s.Stop(ctx))
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	return withSharedLock(r.opts.StateDir, func() error { return undoRun(ctx, r.folder, r.hierarchies) })
}
