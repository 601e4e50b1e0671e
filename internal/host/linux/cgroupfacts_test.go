package linux

import (
	"errors"
	"math"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/test/hosttest"
)

func TestCgroup(t *testing.T) {
	const (
		uid     = "0f9a3c52-7d1e-4b7a-9c55-0123456789ab"
		pod     = "kubepods/burstable/pod" + uid
		slice   = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0f9a3c52_7d1e_4b7a_9c55_0123456789ab.slice"
		v1      = "5:memory:/" + pod + "/c0\n4:cpu,cpuacct:/" + pod + "/c0\n3:hugetlb:/" + pod + "/c0\n0::/\n"
		unified = "cgroup.controllers"
	)
	page := uint64(os.Getpagesize())
	for name, test := range map[string]struct {
		cgroups string
		files   map[string]string
		want    host.CgroupFacts
		// throttling of the next sample.
		throttling *host.Throttling
	}{
		"version 1": {
			cgroups: v1,
			files: map[string]string{
				"cpu/" + pod + "/cpu.shares": "2048\n", "cpu/" + pod + "/c0/cpu.shares": "512\n",
				"memory/" + pod + "/c0/memory.numa_stat": "total=9 N0=4 N1=5\nfile=1 N0=1 N1=0\nhierarchical_total=30 N0=10 N1=20\nhierarchical_file=1 N0=1 N1=0\n",
			},
			want: host.CgroupFacts{Weight: 2048, MemoryBytes: []uint64{10 * page, 20 * page}},
		},
		"version 1, huge pages": {
			cgroups: v1,
			files: map[string]string{
				"hugetlb/" + pod + "/c0/hugetlb.2MB.numa_stat": "total=0 N0=0 N1=0\nhierarchical_total=2097152 N0=0 N1=2097152\n",
				"hugetlb/" + pod + "/c0/hugetlb.1GB.numa_stat": "total=0 N0=0 N1=0\nhierarchical_total=1073741824 N0=1073741824 N1=0\n",
			},
			want: host.CgroupFacts{MemoryBytes: []uint64{1 << 30, 2 << 20}},
		},
		"version 2, driver cgroupfs": {
			cgroups: "0::/" + pod + "/c0\n",
			files: map[string]string{
				unified: "cpu memory", pod + "/cpu.weight": "39\n", pod + "/c0/cpu.weight": "100\n",
				pod + "/c0/memory.numa_stat":      "anon N0=4096 N1=8192\nfile N0=1 N1=2\nshmem N0=1 N1=2\n",
				pod + "/c0/hugetlb.2MB.numa_stat": "total=2097152 N0=2097152 N1=0\n",
			},
			want: host.CgroupFacts{Weight: 2 + 38*262142.0/9999, MemoryBytes: []uint64{4097 + 2<<20, 8194}},
		},
		"version 2, driver systemd, cgroups below the container's": {
			cgroups: "0::/" + slice + "/cri-containerd-c0.scope/container\n",
			files: map[string]string{
				unified: "cpu memory", slice + "/cpu.weight": "1\n",
				slice + "/cri-containerd-c0.scope/container/cgroup.procs": "",
				slice + "/cri-containerd-c0.scope/memory.numa_stat":       "anon N0=4096\n",
			},
			want: host.CgroupFacts{Weight: 2, MemoryBytes: []uint64{4096}},
		},
		"version 1, limits": {
			cgroups: v1,
			files: map[string]string{
				"cpu/" + pod + "/cpu.cfs_quota_us": "450000\n", "cpu/" + pod + "/cpu.cfs_period_us": "100000\n",
				"cpu/" + pod + "/c0/cpu.cfs_quota_us": "400000\n", "cpu/" + pod + "/c0/cpu.cfs_period_us": "100000\n",
				"cpu/" + pod + "/c0/cpu.stat": "nr_periods 20\nnr_throttled 5\nthrottled_time 3000000000\nnr_bursts 0\n",
			},
			want:       host.CgroupFacts{LimitCores: 4},
			throttling: &host.Throttling{Periods: 20, Throttled: 5, Time: 3 * time.Second},
		},
		"version 1, no limit": {
			cgroups: v1,
			files:   map[string]string{"cpu/" + pod + "/c0/cpu.cfs_quota_us": "-1\n", "cpu/" + pod + "/c0/cpu.cfs_period_us": "100000\n"},
		},
		"version 2, the pod's limit is tighter": {
			cgroups: "0::/" + pod + "/c0/inner\n",
			files: map[string]string{
				unified: "cpu", pod + "/cpu.max": "1000 1000\n", pod + "/c0/cpu.max": "200000 100000\n", pod + "/c0/inner/cgroup.procs": "",
				pod + "/cpu.stat": "usage_usec 7\nnr_periods 20\nnr_throttled 5\nthrottled_usec 3000000\n",
			},
			want:       host.CgroupFacts{LimitCores: 1},
			throttling: &host.Throttling{Periods: 20, Throttled: 5, Time: 3 * time.Second},
		},
		"version 2, a limit without counters": {
			cgroups: "0::/" + pod + "/c0\n",
			files:   map[string]string{unified: "cpu", pod + "/cpu.max": "max 100000\n", pod + "/c0/cpu.max": "50000 100000\n"},
			want:    host.CgroupFacts{LimitCores: 0.5},
		},
		"version 2, limits that the kernel does not write": {
			cgroups: "0::/" + pod + "/c0\n",
			files: map[string]string{
				unified: "cpu", pod + "/cpu.max": "5 0\n", pod + "/c0/cpu.max": "200000 100000\n",
				pod + "/c0/cpu.stat": "nr_periods\nnr_throttled x\nthrottled_usec 18446744073709551615\n",
			},
			want:       host.CgroupFacts{LimitCores: 2},
			throttling: &host.Throttling{Time: (math.MaxInt64 / 1000) * time.Microsecond},
		},
		"a node in a pod": {
			cgroups: "0::/kubepods/pod11111111-7d1e-4b7a-9c55-0123456789ab/node/" + pod + "/c0\n",
			files: map[string]string{
				unified: "cpu", "kubepods/pod11111111-7d1e-4b7a-9c55-0123456789ab/cpu.weight": "7\n",
				"kubepods/pod11111111-7d1e-4b7a-9c55-0123456789ab/node/" + pod + "/cpu.weight": "10000\n",
			},
			want: host.CgroupFacts{Weight: 262144},
		},
		"what was written": {
			cgroups: v1,
			files:   map[string]string{"../../../proc/100/io": "rchar: 1\nwchar: 99\nwrite_bytes: 8192\ncancelled_write_bytes: 4096\n"},
			want:    host.CgroupFacts{WrittenBytes: ptr.To[uint64](8192)},
		},
		"written beyond all": {
			cgroups: v1,
			files:   map[string]string{"../../../proc/100/io": "write_bytes: 99999999999999999999\n"},
		},
		"no pod": {
			cgroups: "0::/system.slice/libvirtd.service\n",
			files:   map[string]string{unified: "cpu", "system.slice/cpu.weight": "100\n", "memory.numa_stat": "anon N0=1\n"},
		},
		"what the kernel does not write": {
			cgroups: "0::/" + pod + "/c0\n",
			files: map[string]string{
				unified: "cpu", pod + "/cpu.weight": "many\n",
				pod + "/c0/memory.numa_stat": "anon N99999999=5 N0 N1= =7 N0=x N0=18446744073709551615 N2=3\nanon\n",
			},
			want: host.CgroupFacts{MemoryBytes: []uint64{0, 0, 3}},
		},
		"nonsense": {cgroups: "nonsense"},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t)
			for file, content := range test.files {
				tr.write("sys/fs/cgroup/"+file, content)
			}
			id := tr.process(100, "qemu-kvm", test.cgroups)
			h := tr.host()
			mustProcesses(t, h)
			got, err := h.Cgroup(id)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			sample, err := h.Sample(id)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.throttling, sample.Throttling); diff != "" {
				t.Errorf("throttling -want +got:\n%s", diff)
			}
			id.Start--
			if _, err := h.Cgroup(id); !errors.Is(err, host.ErrGone) {
				t.Errorf("of a process that ended: %v, want ErrGone", err)
			}
		})
	}
}

// The kubelet's conversion there and back gives what was asked for, as near as whole
// weights can.
func TestSharesOf(t *testing.T) {
	for shares := uint64(2); shares <= 262144; shares += 101 {
		weight := 1 + (shares-2)*9999/262142
		if back := sharesOf(weight); back > float64(shares) || math.Abs(back-float64(shares)) > 262142.0/9999+1e-9 {
			t.Errorf("%d shares are weight %d and back %v", shares, weight, back)
		}
	}
	for weight, want := range map[uint64]float64{0: 2, 1: 2, 10000: 262144} {
		if got := sharesOf(weight); math.Abs(got-want) > 1e-6 {
			t.Errorf("weight %d: %v, want %v", weight, got, want)
		}
	}
}

func TestRealCgroup(t *testing.T) {
	one, _ := hosttest.TwoCPUs(t)
	pod := hosttest.NewPod(t, one.String())
	vm := hosttest.StartVM(t, "shop", "web")
	pod.Add(vm)
	h := realHost(t)
	mustProcesses(t, h)
	facts, err := h.Cgroup(vm.ID())
	if err != nil || facts.Weight < 0 {
		t.Errorf("facts %+v, %v", facts, err)
	}
	vm.End()
	mustProcesses(t, h)
	if _, err := h.Cgroup(vm.ID()); !isGone(err) {
		t.Errorf("of a VM that ended: %v, want ErrGone", err)
	}
}
