//go:build e2e

// Package offload measures on a real node what a gateway is worth: a VM computes while clients
// download what it serves, from the VM itself or from a gateway in front of it, and tells the life
// of a share that both have. The VM's CPU is emulated.
package offload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/env/node"
)

const (
	// fileSize is that of the guest's files.
	fileSize = 4 << 20
	// computed are the megabytes that the guest's task takes: some ten seconds.
	computed = 500
	patience = 3 * time.Minute
	// taskTimeout bounds the task while 50 clients ask the guest itself: 16 s on one machine, 134 s on another.
	taskTimeout = 20 * time.Minute
)

type world struct {
	*testing.T
	*node.Environment
	vm types.NamespacedName
	// guest is the VM's address, and direct and cached what it and its gateway serve.
	guest          string
	direct, cached way
	client         *http.Client
	// files is the first name that no round has asked for.
	files int64
}

// way is how clients get what the guest serves.
type way struct {
	// files is the URL of a file, with %d for its number.
	files string
	// helpers are processes whose containers take part beside QEMU.
	helpers []int
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// round is what was measured while the guest's task ran.
type round struct {
	taskSeconds, megabytes float64
	// switches and sent are the guest's: context switches, and bytes that left it.
	switches, sent float64
	// vcpu, qemu and helpers are CPU seconds of the vCPU's thread, of QEMU's others, and of the
	// way's containers.
	vcpu, qemu, helpers float64
}

// TestOffload measures what a gateway is worth, and tells the life of a share, on one node.
//
//e2e:alone it compares the CPU time of paths
func TestOffload(t *testing.T) {
	e := node.StartForTest(t, node.Options{Product: true, Gateway: true, Cluster: cluster.Options{KubeVirtConfig: allowShares}})
	t.Run("Cache", func(t *testing.T) { measureCache(start(t, e)) })
	t.Run("SharedMemory", func(t *testing.T) { shareLives(startShared(t, e)) })
}

// measureCache measures the task alone, and with 1, 5 and 50 clients for each file, that the VM
// serves itself or through a gateway.
func measureCache(w *world) {
	alone := w.measure(way{}, 0)
	w.Logf("the task alone: %.1f s, %.1f CPU seconds of the vCPU's thread and %.2f of QEMU's others", alone.taskSeconds, alone.vcpu, alone.qemu)
	w.Log("| clients per file | served by | MB/s | task, s | guest's switches per MB | vCPU, QEMU, gateway: CPU ms per MB beyond the task |")
	var direct, cached round
	report := func(clients int, name string, r round) {
		w.Logf("| %d | %s | %.1f | %.1f | %.1f | %.2f, %.2f, %.2f |", clients, name, r.megabytes/r.taskSeconds, r.taskSeconds,
			r.switches/r.megabytes, 1e3*(r.vcpu-alone.vcpu)/r.megabytes, 1e3*(r.qemu-alone.qemu)/r.megabytes, 1e3*r.helpers/r.megabytes)
	}
	for _, clients := range []int{1, 5, 50} {
		direct, cached = w.measure(w.direct, clients), w.measure(w.cached, clients)
		report(clients, "VM", direct)
		report(clients, "gateway", cached)
		// Each file leaves the VM once, with its headers and what is sent again. Of the last ones
		// not all downloads are done.
		if most := 1.2*cached.megabytes*1e6/float64(clients) + 10*fileSize; cached.sent > most {
			w.Errorf("%d clients: the VM sent %.3g bytes while the gateway sent %.3g, want at most %.3g", clients, cached.sent, cached.megabytes*1e6, most)
		}
	}
	if most := direct.switches / direct.megabytes; cached.switches/cached.megabytes >= most {
		w.Errorf("with a gateway the guest switches %.0f times per MB, want less than %.0f", cached.switches/cached.megabytes, most)
	}
	cpu := func(r round) float64 {
		return (r.vcpu + r.qemu + r.helpers - alone.vcpu - alone.qemu) / r.megabytes
	}
	w.Logf("figure offload_throughput_ratio %.4g x", cached.megabytes/cached.taskSeconds/(direct.megabytes/direct.taskSeconds))
	w.Logf("figure offload_task_time_ratio %.4g x", cached.taskSeconds/direct.taskSeconds)
	w.Logf("figure offload_guest_switches_per_mb_ratio %.4g x", cached.switches/cached.megabytes/(direct.switches/direct.megabytes))
	w.Logf("figure offload_cpu_per_mb_ratio %.4g x", cpu(cached)/cpu(direct))
}

// start starts a VM of one vCPU and a gateway in front of it.
func start(t *testing.T, e *node.Environment) *world {
	t.Helper()
	w := newWorld(t, e, "render")
	vmi, err := w.StartVM(t.Context(), w.NewVM(w.vm.Namespace, w.vm.Name, func(t *kubevirtv1.VirtualMachineInstanceTemplateSpec) {
		t.Spec.Domain.CPU = &kubevirtv1.CPU{Cores: 1}
	}))
	w.must(err)
	w.guest = vmi.Status.Interfaces[0].IP + ":80"
	w.direct = way{files: "http://" + w.guest + "/file/%d"}
	gateway := gatewayPod(w.vm.Namespace, w.guest)
	w.must(w.Client().Create(t.Context(), gateway))
	w.must(w.WaitFor(t.Context(), patience, "the gateway is ready", func(ctx context.Context) error {
		if err := w.Client().Get(ctx, client.ObjectKeyFromObject(gateway), gateway); err != nil {
			return err
		}
		for _, c := range gateway.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("its status is %+v", gateway.Status)
	}))
	program, err := w.Nodes()[0].PodProcess(gateway.UID, "joulevirt-gateway")
	w.must(err)
	w.cached = way{files: "http://" + gateway.Status.PodIP + ":8080/file/%d", helpers: []int{program}}
	return w
}

// newWorld makes a namespace for a VM of the same name. All in it ends with the test.
func newWorld(t *testing.T, e *node.Environment, name string) *world {
	t.Helper()
	w := &world{
		T: t, Environment: e,
		vm:     types.NamespacedName{Namespace: name, Name: name},
		client: &http.Client{Timeout: taskTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}},
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	w.must(w.Client().Create(t.Context(), namespace))
	t.Cleanup(func() {
		if err := w.Client().Delete(context.WithoutCancel(t.Context()), namespace); err != nil {
			t.Error(err)
		}
	})
	return w
}

// gatewayPod is one as the manager makes them: without privileges, and all that it writes in memory.
func gatewayPod(namespace, upstream string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gateway"},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: ptr.To(false),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](65532), RunAsGroup: ptr.To[int64](65532), FSGroup: ptr.To[int64](65532),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "gateway", Image: "docker.io/joulevirt/gateway:latest", ImagePullPolicy: corev1.PullIfNotPresent,
				Args: []string{"--upstream=" + upstream, "--memory-min=67108864", "--memory-max=134217728"},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m")}},
				ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
					HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(8081)},
				}},
				VolumeMounts: []corev1.VolumeMount{{Name: "store", MountPath: "/store"}},
			}},
			Volumes: []corev1.Volume{{Name: "store", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
				Medium: corev1.StorageMediumMemory, SizeLimit: ptr.To(resource.MustParse("128Mi")),
			}}}},
		},
	}
}

// measure lets the guest compute while clients download one file after the other. Each file gets as
// many downloads as there are clients, and no client waits for the others.
func (w *world) measure(from way, clients int) round {
	w.Helper()
	ctx, stop := context.WithCancel(w.Context())
	defer stop()
	first := w.files
	var downloads, received atomic.Int64
	var group errgroup.Group
	before := w.counters(from)
	for range clients {
		group.Go(func() error {
			for ctx.Err() == nil { // the task has not ended
				file := first + (downloads.Add(1)-1)/int64(clients)
				if err := w.download(ctx, fmt.Sprintf(from.files, file), &received); err != nil && ctx.Err() == nil {
					return err
				}
			}
			return nil
		})
	}
	text, err := w.get(w.guest, fmt.Sprintf("/compute?megabytes=%d", computed))
	w.must(err)
	r := round{megabytes: float64(received.Load()) / 1e6}
	after := w.counters(from)
	stop()
	w.must(group.Wait())
	w.files = first + downloads.Load()
	r.taskSeconds, err = strconv.ParseFloat(text, 64)
	w.must(err)
	r.switches, r.sent = after.switches-before.switches, after.sent-before.sent
	r.vcpu, r.qemu, r.helpers = after.vcpu-before.vcpu, after.qemu-before.qemu, after.helpers-before.helpers
	return r
}

// download adds what it receives of a file to received.
func (w *world) download(ctx context.Context, url string, received *atomic.Int64) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := w.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	n := 0
	for buffer := make([]byte, 64<<10); err == nil; {
		var more int
		more, err = response.Body.Read(buffer)
		n += more
		received.Add(int64(more))
	}
	if !errors.Is(err, io.EOF) || n != fileSize || response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s, %d bytes: %w", url, response.Status, n, err)
	}
	return nil
}

func (w *world) get(address, path string) (string, error) {
	response, err := w.client.Get("http://" + address + path)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return string(text), err
}

// counters are totals of the guest and of the processes of a way.
func (w *world) counters(from way) round {
	w.Helper()
	var r round
	text, err := w.get(w.guest, "/counters")
	w.must(err)
	_, err = fmt.Sscan(text, &r.switches, &r.sent)
	w.must(err)
	n := w.Nodes()[0]
	qemu, err := n.QEMU(w.vm)
	w.must(err)
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", qemu))
	w.must(err)
	for _, thread := range threads {
		name, err := os.ReadFile(filepath.Join(thread, "comm"))
		if err != nil {
			continue // it has ended
		}
		if strings.HasPrefix(string(name), "CPU ") {
			r.vcpu += runSeconds(thread)
		} else {
			r.qemu += runSeconds(thread)
		}
	}
	for _, helper := range from.helpers {
		r.helpers += w.groupSeconds(helper)
	}
	return r
}

// runSeconds is the CPU time of a thread.
func runSeconds(thread string) float64 {
	text, err := os.ReadFile(filepath.Join(thread, "schedstat"))
	if err != nil {
		return 0 // it has ended
	}
	nanoseconds, _ := strconv.ParseFloat(strings.Fields(string(text))[0], 64)
	return nanoseconds / 1e9
}

// groupSeconds is the CPU time of a process's container.
func (w *world) groupSeconds(pid int) float64 {
	w.Helper()
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	w.must(err)
	for line := range strings.Lines(string(groups)) {
		if _, path, found := strings.Cut(strings.TrimSpace(line), ":cpuacct:"); found {
			text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/cpuacct", path, "cpuacct.usage"))
			w.must(err)
			nanoseconds, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
			w.must(err)
			return nanoseconds / 1e9
		}
	}
	w.Fatalf("process %d has no cgroup of controller cpuacct:\n%s", pid, groups)
	return 0
}
