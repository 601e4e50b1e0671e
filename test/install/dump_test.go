//go:build e2e

package install

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/internal/units"
)

// dump has all that the product may change of the VMs, their node and their traffic.
func (s *removal) dump() map[string]string {
	s.Helper()
	dump := map[string]string{}
	for _, m := range []*machine{s.web, s.spare} {
		s.dumpThreads(dump, m)
		s.dumpNetwork(dump, m)
	}
	s.dumpPins(dump)
	s.dumpObjects(dump)
	return dump
}

// installed names what there is of the product in the cluster, but its requests for
// certificates, which Kubernetes removes an hour after they were signed.
func (s *removal) installed() []string {
	s.Helper()
	const kinds = "namespaces,crd,clusterroles,clusterrolebindings,priorityclasses,validatingadmissionpolicies,validatingadmissionpolicybindings"
	var ours []string
	for name := range strings.Lines(s.kubectl("get", kinds, "-o", "name")) {
		if strings.Contains(name, "joulevirt") {
			ours = append(ours, strings.TrimSpace(name))
		}
	}
	return ours
}

// dumpThreads records how the kernel schedules a VM's threads, and where they go when their
// cpuset shrinks and grows again: a mask that somebody wrote would not follow. Threads that
// come and go count together, and only while they differ from the process's first.
func (s *removal) dumpThreads(dump map[string]string, m *machine) {
	s.Helper()
	of := func(what string) {
		threads, err := procfs.AllThreads(m.qemu)
		if err != nil {
			s.Fatal(err)
		}
		lines, first := map[string]bool{}, ""
		for _, t := range threads {
			name, nameErr := t.Comm()
			attr, attrErr := unix.SchedGetAttr(t.PID, 0)
			mask, maskErr := affinityOf(t.PID)
			if errors.Join(nameErr, attrErr, maskErr) != nil {
				continue // it ended
			}
			is := fmt.Sprintf(" on %s: %+v", mask, *attr)
			if t.PID == m.qemu {
				first = is
			}
			if strings.HasPrefix(name, "worker") || strings.HasPrefix(name, "pool-") {
				if is == first {
					continue
				}
				name = "worker"
			}
			lines[name+is] = true
		}
		dump["threads of "+m.name+", "+what] = text(lines)
	}
	of("as they are")
	file := m.cpuset()
	all, err := os.ReadFile(file)
	s.check(err)
	for _, cpus := range []string{"1", strings.TrimSpace(string(all))} {
		s.check(os.WriteFile(file, []byte(cpus), 0))
		of("cpuset " + cpus)
	}
}

func affinityOf(tid int) (units.CPUSet, error) {
	mask := unix.NewCPUSet(units.MaxCPUs)
	if err := unix.SchedGetaffinityDynamic(tid, mask); err != nil {
		return units.CPUSet{}, err
	}
	var cpus []int
	for cpu := range units.MaxCPUs {
		if mask.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return units.NewCPUSet(cpus...), nil
}

// dumpNetwork records the queues, filters, programs, rules and routes in the network
// namespace of a VM's pod.
func (s *removal) dumpNetwork(dump map[string]string, m *machine) {
	s.Helper()
	pid := m.qemu
	in := func(command ...string) {
		out, err := exec.CommandContext(s.Context(), "nsenter", append([]string{"--target", strconv.Itoa(pid), "--net"}, command...)...).CombinedOutput()
		if err != nil {
			s.Fatalf("%v: %v: %s", command, err, out)
		}
		dump[strings.Join(command, " ")+" of "+m.name] = string(out)
	}
	in("tc", "qdisc", "show")
	in("nft", "--stateless", "list", "ruleset")
	in("ip", "route", "show", "table", "all")
	namespace, err := netns.GetFromPid(pid)
	if err != nil {
		s.Fatal(err)
	}
	defer namespace.Close()
	handle, err := netlink.NewHandleAt(namespace)
	if err != nil {
		s.Fatal(err)
	}
	defer handle.Close()
	links, err := handle.LinkList()
	if err != nil {
		s.Fatal(err)
	}
	for _, one := range links {
		name := one.Attrs().Name
		for _, at := range [][]string{nil, {"ingress"}, {"egress"}} {
			in(append([]string{"tc", "filter", "show", "dev", name}, at...)...)
		}
	}
}

// dumpPins records the pins in the BPF file system.
func (s *removal) dumpPins(dump map[string]string) {
	s.Helper()
	pins, err := filepath.Glob("/sys/fs/bpf/joulevirt/*")
	if err != nil {
		s.Fatal(err)
	}
	dump["pins"] = strings.Join(pins, " ")
	if _, err := os.Stat("/sys/fs/bpf/joulevirt"); err == nil {
		dump["pins"] += " folder"
	}
}

// dumpObjects records the labels and annotations of the node, the VMs, their pods and
// Services, and who answers for the Service.
func (s *removal) dumpObjects(dump map[string]string) {
	s.Helper()
	lists := []client.ObjectList{&kubevirtv1.VirtualMachineInstanceList{}, &corev1.PodList{}, &corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}}
	objects := []client.Object{&corev1.Node{}}
	if err := s.Client().Get(s.Context(), client.ObjectKey{Name: s.node.Name}, objects[0]); err != nil {
		s.Fatal(err)
	}
	for _, list := range lists {
		if err := s.Client().List(s.Context(), list, client.InNamespace(shop)); err != nil {
			s.Fatal(err)
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			objects = append(objects, item.(client.Object))
			return nil
		})
		if err != nil {
			s.Fatal(err)
		}
	}
	for _, o := range objects {
		if name := o.GetName(); name == "labelled" || name == "owned" {
			continue // pods of nobody: what docs/removal.md says changes their annotations too
		}
		lines := map[string]bool{}
		if slice, ok := o.(*discoveryv1.EndpointSlice); ok {
			for _, e := range slice.Endpoints {
				lines[fmt.Sprintf("endpoint %v %+v", e.Addresses, *e.Conditions.Ready)] = true
			}
		}
		for key, value := range o.GetLabels() {
			lines["label "+key+"="+value] = true
		}
		for key, value := range o.GetAnnotations() {
			if !slices.Contains([]string{kubevirtv1.VirtHandlerHeartbeat, corev1.EndpointsLastChangeTriggerTime}, key) {
				lines["annotation "+key+"="+value] = true
			}
		}
		dump[fmt.Sprintf("%T %s", o, o.GetName())] = text(lines)
	}
}

// text is a set of lines, sorted.
func text(lines map[string]bool) string {
	return strings.Join(slices.Sorted(maps.Keys(lines)), "\n")
}
