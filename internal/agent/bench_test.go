package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/agent/publish"
	"github.com/joulevirt/joulevirt/internal/host/linux"
	"github.com/joulevirt/joulevirt/test/agenttest"
)

// BenchmarkRound is one round on a node with 200 VMs of four threads that nothing is planned
// for. Count its system calls with strace -fc.
func BenchmarkRound(b *testing.B) {
	const vms = 200
	cluster := agenttest.NewLoopback(clock.RealClock{})
	dir := b.TempDir()
	write := func(name, content string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	write("proc/stat", "cpu0 1 2 3 4 5 6 7 8\ncpu1 1 2 3 4 5 6 7 8\nintr\n")
	for cpu := range 2 {
		topology := fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/", cpu)
		for _, name := range []string{"core_id", "thread_siblings_list"} {
			write(topology+name, fmt.Sprintln(cpu))
		}
		write(topology+"physical_package_id", "0\n")
	}
	write("sys/devices/system/cpu/online", "0-1\n")
	write("sys/fs/cgroup/cgroup.controllers", "cpuset\n")
	inventory, err := cluster.Inventory(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for i := range vms {
		pid, uid := 1_000_000+100*i, fmt.Sprintf("0f9a3c52-7d1e-4b7a-9c55-%012d", i)
		agenttest.AddVM(inventory, uid, "shop", fmt.Sprintf("vm%d", i))
		cgroup := "kubepods/burstable/pod" + uid + "/" + strings.Repeat("c0", 32)
		write("sys/fs/cgroup/"+cgroup+"/cpuset.cpus.effective", "0-1\n")
		process := fmt.Sprintf("proc/%d/", pid)
		stat := func(comm string) string { return "1 (" + comm + ") S" + strings.Repeat(" 1", 49) + "\n" }
		write(process+"stat", stat("qemu-kvm"))
		write(process+"cmdline", fmt.Sprintf("qemu-kvm\x00-name\x00guest=shop_vm%d,debug-threads=on\x00", i))
		write(process+"cgroup", "0::/"+cgroup+"\n")
		write(process+"net/dev", " eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n tap0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n")
		for thread, name := range []string{"qemu-kvm", "call_rcu", "CPU 0/KVM", "CPU 1/KVM"} {
			task := fmt.Sprintf("%stask/%d/", process, pid+thread)
			write(task+"stat", stat(name))
			write(task+"schedstat", "10 20 30\n")
		}
	}
	host, err := linux.New(linux.Options{ProcRoot: filepath.Join(dir, "proc"), SysRoot: filepath.Join(dir, "sys")})
	if err != nil {
		b.Fatal(err)
	}
	defer host.Close()
	j, err := journal.Open(filepath.Join(dir, "journal"), "boot")
	if err != nil {
		b.Fatal(err)
	}
	a, err := New(Options{
		Node: "node1", Interval: time.Second, StaleAfter: time.Hour, Host: host, Cluster: cluster, Statuses: cluster,
		Prior: noPrior, Board: &publish.Board{}, Clock: clock.RealClock{}, Log: logr.Discard(),
	}, j)
	if err != nil {
		b.Fatal(err)
	}
	const young = 20 // rounds in which new processes are read more often
	for range young {
		a.round(b.Context(), true)
	}
	b.ReportAllocs()
	for b.Loop() {
		a.round(b.Context(), true)
	}
	if got := len(a.opts.Board.Latest().Rates.VMs); got != vms {
		b.Fatalf("%d VMs of %d in the rates", got, vms)
	}
}
