//go:build e2e

package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/env/product"
	"github.com/joulevirt/joulevirt/test/env/tasks"
	"github.com/joulevirt/joulevirt/test/internal/proc"
)

// hostileNames has objects and processes with names that nobody would choose, beside those of the
// VMs, which have names and labels of the greatest length from the start. Processes claim to run VMs
// in folders that are no pods', and one in a VM's own pod: then nobody knows which of the two runs
// the VM, and it is left alone until the other has ended.
func (f *fault) hostileNames() {
	odd := "\u0001\n\t\u202e'\"`$(reboot)`; --\\\x7f" + strings.Repeat("\U0001f4a3", 1000)
	quoted, err := json.Marshal(odd)
	f.must(err)
	f.patch(f.machines[1].vmi, `{"metadata":{"annotations":{"example.com/odd":%s}}}`, quoted)
	profile := f.newProfile("odd", v1alpha1.TrafficInteractive)
	profile.Name = strings.Repeat(strings.Repeat("a", 63)+".", 3) + strings.Repeat("z", 61)
	profile.Spec.Selector.MatchLabels["none"] = "0" + strings.Repeat("-._", 20) + "Z"
	f.create(profile)

	pod, claimed := f.cgroup(f.machines[0])
	// Not beside those of pods: the kubelet ends what it does not know there.
	kubepods := filepath.Join(filepath.Dir(filepath.Dir(pod)), "odd")
	f.must(os.Mkdir(kubepods, 0o755))
	f.Cleanup(func() {
		if err := unix.Rmdir(kubepods); err != nil {
			f.Error(err)
		}
	})
	if err := os.Mkdir(filepath.Join(kubepods, "pod\nnew line"), 0o755); !errors.Is(err, unix.EINVAL) {
		f.Errorf("the kernel made a cgroup with a new line: %v", err)
	}
	deep := filepath.Join(kubepods, "podaaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee")
	for range 12 {
		deep = filepath.Join(deep, strings.Repeat("d", 250))
	}
	var fakes []int
	for _, folder := range []string{filepath.Join(kubepods, "pod \xff\xfe"), filepath.Join(kubepods, "pod.. "+odd[6:16]), deep, filepath.Join(pod, " (\xff) ")} {
		fakes = append(fakes, f.fake(folder, claimed))
	}
	f.eventually("the VM that two claim to run is left alone", f.free(f.machines[0]))
	f.requests()
	f.eventually("levers act on the other VMs", func(ctx context.Context) error {
		now, err := f.acted(ctx)
		for _, m := range f.machines[1:] {
			if !now[m.vmi.Name] {
				err = errors.Join(err, fmt.Errorf("none acts on VM %s", m.vmi.Name))
			}
		}
		return err
	})
	for _, fake := range fakes {
		threads, err := tasks.Threads(f.Context(), fake)
		f.must(err)
		if len(threads) != 1 || threads[0].CPUs != f.allCPUs || threads[0].Slice != f.byDefault {
			f.Errorf("a process that is no VM has threads %+v", threads)
		}
	}
	for _, fake := range fakes {
		f.must(syscall.Kill(fake, syscall.SIGKILL))
	}
}

// cgroup returns the folder of a VM's pod in some hierarchy, and the name that its QEMU has.
func (f *fault) cgroup(m *machine) (folder, guest string) {
	f.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", m.qemu))
	f.must(err)
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if !strings.Contains(parts[2], "kubepods") || strings.Contains(parts[1], "cpuset") {
			continue // one of cpuset takes no process before it has CPUs
		}
		for _, mount := range []string{strings.TrimPrefix(parts[1], "name="), "unified", ""} {
			folder := filepath.Join("/sys/fs/cgroup", mount, filepath.Dir(parts[2]))
			if _, err := os.Stat(folder); err == nil {
				return folder, m.vmi.Namespace + "_" + m.vmi.Name
			}
		}
	}
	f.Fatalf("QEMU is in no pod: %s", text)
	return "", ""
}

// fake starts a process of the node in a cgroup that calls itself QEMU, and stops.
func (f *fault) fake(folder, guest string) (pid int) {
	f.Helper()
	f.must(os.MkdirAll(folder, 0o755))
	var started *proc.Process
	f.Cleanup(func() {
		if started != nil {
			started.Kill()
		}
		for ; filepath.Base(folder) != "odd" && filepath.Base(folder) != "burstable"; folder = filepath.Dir(folder) {
			if err := unix.Rmdir(folder); err != nil {
				break // not ours, or not empty
			}
		}
	})
	shell, err := os.ReadFile("/bin/sh")
	f.must(err)
	const program = "/tmp/qemu-\n) \xffx86"
	path, err := f.node.Root(program)
	f.must(err)
	f.must(errors.Join(os.RemoveAll(path), os.WriteFile(path, shell, 0o755)))
	started, err = f.node.Start(fmt.Sprintf("fake-%d", len(folder)), program, "-c", "kill -STOP $$; exit",
		"-name", "guest="+guest+",debug-threads=on", strings.Repeat("\xff\n", 50_000))
	f.must(err)
	f.eventually("the process runs in the node", func(context.Context) error {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", started.PID, started.PID))
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err
	})
	f.must(os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644))
	return pid
}

// foreignToken uses the token of another node's agent for the objects of this one, and for its own
// when its node is gone.
func (f *fault) foreignToken() {
	const other = "other"
	f.must(f.Client().Create(f.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: other}}))
	config, _, err := f.ServiceAccountConfig(f.Context(), product.Namespace, "joulevirt-agent", other)
	f.must(err)
	agent, err := client.New(config, client.Options{Scheme: f.Client().Scheme()})
	f.must(err)
	report := func(node string) *v1alpha1.NodeReport {
		return &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: node}}
	}
	f.must(agent.Create(f.Context(), report(other)))
	lie := func(o client.Object, status string) error {
		return agent.Status().Patch(f.Context(), o, client.RawPatch(types.MergePatchType, []byte(status)))
	}
	f.must(lie(report(other), `{"status":{"kernelVersion":"6.12"}}`))
	for _, err := range []error{
		lie(report(f.node.Name), `{"status":{"kernelVersion":"6.12"}}`),
		lie(&v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Name: f.node.Name}}, `{"status":{"vmsInForce":0}}`),
		agent.Delete(f.Context(), report(f.node.Name)),
	} {
		if !apierrors.IsForbidden(err) {
			f.Errorf("another node's agent: %v, want it forbidden", err)
		}
	}
	f.must(f.Client().Delete(f.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: other}}))
	f.eventually("the token ends with its node", func(context.Context) error {
		if err := lie(report(other), `{"status":{"kernelVersion":"6.13"}}`); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("the API server says: %w", err)
		}
		return nil
	})
	f.must(client.IgnoreNotFound(f.Client().Delete(f.Context(), report(other))))
}
