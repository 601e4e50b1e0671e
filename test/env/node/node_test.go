//go:build e2e

package node

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/env/node/internal/sandbox"
)

// childVariable makes the test binary start an environment and wait for its end.
const childVariable = "JOULEVIRT_NODE_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		if err := child(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// child says on standard output which number its environment has, and stays.
func child(ctx context.Context) error {
	e, err := Start(ctx, testOptions())
	if err != nil {
		return err
	}
	fmt.Printf("started %d\n", e.claim.number)
	<-ctx.Done()
	return nil
}

func testOptions() Options {
	return Options{Cluster: cluster.Options{Binaries: binaries.FromEnvironment(os.Getenv, os.Stderr)}}
}

// TestVMMigratesBetweenRealNodes starts a node, a VM and a second node, and
// migrates the VM, beside another process's environment, which is killed.
// Afterwards the machine is as before.
func TestVMMigratesBetweenRealNodes(t *testing.T) {
	ctx := t.Context()
	before := settings(t)
	start := time.Now()
	e, err := Start(ctx, testOptions())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			if err := e.SaveLogs(artifacts(t)); err != nil {
				t.Error(err)
			}
		}
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
		waitGone(t, func() []string { return leftOf(t, e.hierarchies, e.claim.number) })
		if exists(e.claim.dir) {
			t.Errorf("folder %s is left", e.claim.dir)
		}
		if diff := cmp.Diff(before, settings(t)); diff != "" {
			t.Errorf("settings of the machine (-before +after):\n%s", diff)
		}
	})
	t.Logf("figure node_start_s %.1f s", time.Since(start).Seconds())

	key := types.NamespacedName{Namespace: corev1.NamespaceDefault, Name: "web"}
	start = time.Now()
	if _, err := e.StartVM(ctx, e.NewVM(key.Namespace, key.Name, nil)); err != nil {
		t.Fatal(err)
	}
	t.Logf("figure vm_running_s %.1f s", time.Since(start).Seconds())
	first := e.Nodes()[0]
	if _, err := first.QEMU(key); err != nil {
		t.Error(err)
	}
	other := startChild(t)
	start = time.Now()
	second, err := e.AddNode(ctx, NodeOptions{Labels: map[string]string{"test.joulevirt.io/second": "yes"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("second node: %.1f s", time.Since(start).Seconds())
	node := &corev1.Node{}
	if err := e.Client().Get(ctx, client.ObjectKey{Name: second.Name}, node); err != nil {
		t.Fatal(err)
	}
	if node.Labels["test.joulevirt.io/second"] != "yes" {
		t.Errorf("the second node's labels are %v", node.Labels)
	}
	start = time.Now()
	vmi, err := e.Migrate(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("migration: %.1f s", time.Since(start).Seconds())
	if vmi.Status.NodeName != second.Name {
		t.Errorf("the VM is on node %s, want %s", vmi.Status.NodeName, second.Name)
	}
	if _, err := e.WaitAnswers(ctx, key); err != nil {
		t.Error(err)
	}
	if _, err := second.QEMU(key); err != nil {
		t.Error(err)
	}
	other.kill(t, e.hierarchies)
	restarts(t, e, second, key)
}

// restarts has kubelet and containerd end: the VM goes on.
func restarts(t *testing.T, e *Environment, n *Node, key types.NamespacedName) {
	t.Helper()
	before, err := n.QEMU(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.RestartContainerd(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.RestartKubelet(t.Context()); err != nil {
		t.Fatal(err)
	}
	pods := &corev1.PodList{}
	if err := e.Client().List(t.Context(), pods, client.InNamespace(key.Namespace), client.MatchingLabels{"app": key.Name}); err != nil {
		t.Fatal(err)
	}
	// The kubelet serves logs and exec again, through the API server.
	err = e.WaitFor(t.Context(), partTimeout, "logs and exec", func(ctx context.Context) error {
		for _, pod := range pods.Items {
			if pod.Spec.NodeName != n.Name {
				continue
			}
			log, err := e.RunKubectl(ctx, "logs", "--namespace="+pod.Namespace, pod.Name)
			if err != nil || !strings.Contains(log, "Domain name event") {
				return fmt.Errorf("log of %s: %w: %s", pod.Name, err, log)
			}
			names, err := e.RunKubectl(ctx, "exec", "--namespace="+pod.Namespace, pod.Name, "--", "virsh", "list", "--name")
			if err != nil || strings.TrimSpace(names) != key.Namespace+"_"+key.Name {
				return fmt.Errorf("virsh in %s: %w: %s", pod.Name, err, names)
			}
			return nil
		}
		return fmt.Errorf("no launcher pod on node %s", n.Name)
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := e.WaitAnswers(t.Context(), key); err != nil {
		t.Error(err)
	}
	if after, err := n.QEMU(key); err != nil || after != before {
		t.Errorf("QEMU was process %d and is %d (%v)", before, after, err)
	}
}

// killed is a process of its own that has an environment.
type killed struct {
	cmd    *exec.Cmd
	output io.Reader
}

func startChild(t *testing.T) *killed {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &killed{cmd: exec.CommandContext(t.Context(), program)}
	c.cmd.Env = append(os.Environ(), childVariable+"=1")
	c.cmd.Stderr = os.Stderr
	if c.output, err = c.cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

// kill kills the process once its environment is up: its processes, mounts and
// links go with it, its cgroups and folder with the next environment.
func (c *killed) kill(t *testing.T, hierarchies []sandbox.Hierarchy) {
	t.Helper()
	var number int
	line, readErr := bufio.NewReader(c.output).ReadString('\n')
	_, err := fmt.Sscanf(line, "started %d", &number)
	_ = c.cmd.Process.Kill()
	_, _ = io.Copy(io.Discard, c.output)
	_ = c.cmd.Wait()
	if err != nil {
		t.Fatalf("the other process started no environment: %v, %v", readErr, err)
	}
	own := claimAgain(t, number)
	if own == nil {
		return
	}
	waitGone(t, func() []string { return besideCgroups(leftOf(t, hierarchies, number)) })
	_ = own.lock.Close()
	next, err := newClaim(hierarchies)
	if err != nil {
		t.Fatal(err)
	}
	defer next.lock.Close()
	if next.number != number {
		if own = claimAgain(t, number); own == nil {
			return
		}
		defer own.lock.Close()
	}
	if left := leftOf(t, hierarchies, number); left != nil {
		t.Errorf("the next environment did not remove %v", left)
	}
	if next.number != number && exists(filepath.Join(claims(), strconv.Itoa(number))) {
		t.Error("the next environment did not remove the folder")
	}
}

// claimAgain claims the number of an environment that was killed, so that no other process does
// while its remains are looked at. Nil when one has: its environment has removed them.
func claimAgain(t *testing.T, number int) *claim {
	t.Helper()
	c, err := tryClaim(claims(), number)
	if err != nil {
		t.Fatal(err)
	}
	if c == nil {
		t.Logf("another process has environment %d now", number)
	}
	return c
}

// waitGone waits until nothing is left on the machine: what was killed takes a moment to end.
func waitGone(t *testing.T, left func() []string) {
	t.Helper()
	deadline := time.After(partTimeout)
	for what := left(); what != nil; what = left() {
		select {
		case <-deadline:
			t.Errorf("left on the machine: %v", what)
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// artifacts is the folder for what helps to understand a failure.
func artifacts(t *testing.T) string {
	t.Helper()
	folder := os.Getenv("JOULEVIRT_ARTIFACTS")
	if folder == "" {
		folder = os.TempDir()
	}
	return filepath.Join(folder, t.Name())
}

// leftOf lists what an environment left on the machine, folders aside.
func leftOf(t *testing.T, hierarchies []sandbox.Hierarchy, number int) []string {
	t.Helper()
	var left []string
	for _, h := range hierarchies {
		groups, err := filepath.Glob(filepath.Join(h.Mount, groupPrefix(number)+"*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range groups {
			left = append(left, "cgroup "+group)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	// Those of a node; the machine may have others, such as of a checkout.
	ours := []string{filepath.Join(claims(), strconv.Itoa(number)) + "/", sandbox.Run, "/var/lib/kubelet"}
	for line := range strings.Lines(string(mounts)) {
		if slices.ContainsFunc(ours, func(path string) bool { return strings.Contains(line, path) }) {
			left = append(left, "mount "+line)
		}
	}
	if _, err := netlink.LinkByName(fmt.Sprintf("joulevirt%d", number)); err == nil {
		left = append(left, "link")
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range processes {
		// Processes end while we look.
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), ":/"+groupPrefix(number)) {
			left = append(left, "process "+path)
		}
	}
	return left
}

// besideCgroups returns what is left beside cgroups.
func besideCgroups(left []string) []string {
	var others []string
	for _, what := range left {
		if !strings.HasPrefix(what, "cgroup ") {
			others = append(others, what)
		}
	}
	return others
}

// settings reads those of the machine that a kubelet changes.
func settings(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range []string{
		"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
		"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "net/ipv4/ip_forward", "kernel/hostname",
	} {
		text, err := os.ReadFile(filepath.Join("/proc/sys", name))
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(text)
	}
	return all
}
