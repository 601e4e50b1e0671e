package agent

import (
	"strconv"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/sample"
	"github.com/joulevirt/joulevirt/internal/host/linux"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/symptoms"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/agenttest"
	"github.com/joulevirt/joulevirt/test/hosttest"
)

// TestCausesOfRealWaiting has a real thread wait for each cause in turn, in real cgroups: as many rounds are read
// as a verdict takes, faster than an agent reads them.
func TestCausesOfRealWaiting(t *testing.T) {
	one, _ := hosttest.TwoCPUs(t)
	for name, tc := range map[string]struct {
		limit float64
		// spins is how many vCPUs of the VM want a CPU, and others those of a VM beside it.
		shares, spins, others int
		want                  v1alpha1.Cause
	}{
		"a limit of its own":                       {limit: 0.2, shares: 1024, spins: 1, want: v1alpha1.CauseOwnLimit},
		"a limit of its own, and a neighbour":      {limit: 0.2, shares: 1024, spins: 1, others: 1, want: v1alpha1.CauseOwnLimit},
		"a tenth of a neighbour's weight":          {shares: 102, spins: 1, others: 1, want: v1alpha1.CauseOwnWeight},
		"a neighbour of equal weight":              {shares: 1024, spins: 1, others: 1, want: v1alpha1.CauseNeighbour},
		"two vCPUs of its own on one CPU":          {shares: 1024, spins: 2, want: v1alpha1.CauseOwnWork},
		"one vCPU that has its CPU for itself":     {shares: 1024, spins: 1, want: v1alpha1.CauseStable},
		"a limit that is more than the VM can use": {limit: 4, shares: 1024, spins: 1, want: v1alpha1.CauseStable},
	} {
		t.Run(name, func(t *testing.T) {
			pod := hosttest.NewPod(t, one.String())
			pod.SetCPUTime(tc.shares, tc.limit)
			vm := hosttest.StartVM(t, "shop", "web")
			pod.Add(vm)
			beside := pod.NewSibling(one.String())
			beside.SetCPUTime(1024, 0)
			neighbour := hosttest.StartVM(t, "shop", "neighbour")
			beside.Add(neighbour)
			for i := range tc.spins {
				vm.Spin(vcpuName(i))
			}
			for i := range tc.others {
				neighbour.Spin(vcpuName(i))
			}
			inventory := &discover.Inventory{}
			agenttest.AddVM(inventory, pod.UID, "shop", "web")
			agenttest.AddVM(inventory, beside.UID, "shop", "neighbour")
			got, others := judge(t, inventory, pod.UID, one)
			if tc.want == v1alpha1.CauseStable && others > leastOthers {
				t.Logf("other programs of this machine had the CPU for %.1f %%: the VM did not have it for itself, and got %s", 100*others, got.Verdict)
				return
			}
			if got.Verdict != tc.want {
				t.Errorf("%+v beside others that had the CPU for %.1f %%, want %s", got, 100*others, tc.want)
			}
		})
	}
}

func vcpuName(i int) string { return "CPU " + strconv.Itoa(i) + "/TCG" }

// leastOthers is from which share of a CPU on other programs of the machine may disturb a VM.
const leastOthers = 0.03

// judge the VM of a pod by what its threads do now, and tell which share of its CPU others had.
func judge(t *testing.T, inventory *discover.Inventory, podUID string, on units.CPUSet) (verdict model.Disturbance, others float64) {
	t.Helper()
	h, err := linux.New(linux.Options{ProcRoot: "/proc", SysRoot: "/sys"})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	sampler, history := sample.New(h, clock.RealClock{}), &symptoms.History{}
	var previous *sample.Round
	const rounds, every = 10, 300 * time.Millisecond // some periods of a limit
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := range rounds {
		round, err := sampler.Read(inventory)
		if err != nil {
			t.Log(err) // such as the devices of these VMs
		}
		rates := sample.Rates("node", previous, round)
		if previous = round; i > 1 { // the first round knows no limits yet
			at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(i) * 15 * time.Second)
			vm := rates.VM(podUID)
			history.Add(symptoms.Sample{Time: at, Seconds: 1, Rates: vm, Node: rates})
			for _, cpu := range rates.CPUs {
				if on.Contains(cpu.CPU) {
					others += float64(cpu.BusyCores) / (rounds - 2)
				}
			}
			for _, vcpu := range vm.VCPUs {
				others -= float64(vcpu.RunCores) / (rounds - 2)
			}
		}
		<-tick.C
	}
	return history.Disturbance(), others
}
