package linux

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/host"
)

// TestIdleStates of recorded machines: their names, times of all CPUs added up, and what is disabled.
func TestIdleStates(t *testing.T) {
	for name, want := range map[string][]string{
		"desktop":   {"POLL", "C1", "C2", "C3"},
		"clustered": {"POLL", "C1", "C1E", "C6"},
		"hybrid":    {"POLL", "C1E", "C6", "C8", "C10"},
		"board":     {"WFI", "cpu-sleep"},
	} {
		t.Run(name, func(t *testing.T) {
			tr := machine(t, name)
			cpus := 2
			if name == "board" {
				cpus = 5
			}
			for cpu := range cpus {
				for i := range want {
					tr.write(fmt.Sprintf("sys/devices/system/cpu/cpu%d/cpuidle/state%d/time", cpu, i), fmt.Sprintf("%d\n", 1000*(i+1)))
				}
			}
			got, err := tr.host().IdleStates()
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for i, state := range got.States {
				names = append(names, state.Name)
				if state.Time != time.Duration(cpus*(i+1))*time.Millisecond {
					t.Errorf("state %s has %s", state.Name, state.Time)
				}
			}
			if diff := cmp.Diff(want, names); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestIdleStatesThatAreOdd(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  []host.IdleState
		fails string
	}{
		"none": {nil, nil, ""},
		"disabled on one CPU": {map[string]string{
			"cpu0/cpuidle/state0/name": "C6\n", "cpu0/cpuidle/state0/time": "5\n", "cpu0/cpuidle/state0/disable": "1\n",
			"cpu1/cpuidle/state0/name": "C6\n", "cpu1/cpuidle/state0/time": "7\n", "cpu1/cpuidle/state0/disable": "0\n",
		}, []host.IdleState{{Name: "C6", Time: 12 * time.Microsecond}}, ""},
		"disabled on both": {map[string]string{
			"cpu0/cpuidle/state0/name": "C6\n", "cpu0/cpuidle/state0/time": "5\n", "cpu0/cpuidle/state0/disable": "1\n",
			"cpu1/cpuidle/state0/name": "C6\n", "cpu1/cpuidle/state0/time": "7\n", "cpu1/cpuidle/state0/disable": "2\n",
		}, []host.IdleState{{Name: "C6", Time: 12 * time.Microsecond, Disabled: true}}, ""},
		"no number":    {map[string]string{"cpu0/cpuidle/state0/name": "C6\n", "cpu0/cpuidle/state0/time": "much\n"}, nil, "not a number"},
		"below 0":      {map[string]string{"cpu0/cpuidle/state0/name": "C6\n", "cpu0/cpuidle/state0/time": "-1\n"}, nil, "not a number"},
		"beyond years": {map[string]string{"cpu0/cpuidle/state0/name": "C6\n", "cpu0/cpuidle/state0/time": "9223372036854775807\n"}, nil, "not a number"},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t)
			tr.write("sys/devices/system/cpu/online", "0-1\n")
			for file, content := range test.files {
				tr.write("sys/devices/system/cpu/"+file, content)
			}
			got, err := tr.host().IdleStates()
			if test.fails != "" {
				if err == nil || !strings.Contains(err.Error(), test.fails) {
					t.Errorf("error %v, want %q", err, test.fails)
				}
				return
			}
			if diff := cmp.Diff(test.want, got.States); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestHaltPoll(t *testing.T) {
	for content, want := range map[string]time.Duration{"": 0, "0": 0, "200000": 200 * time.Microsecond, "many": 0, "99999999999999999999": 0} {
		tr := newTree(t)
		tr.write("sys/devices/system/cpu/online", "0-1\n")
		if content != "" {
			tr.write("sys/module/kvm/parameters/halt_poll_ns", content+"\n")
		}
		got, err := tr.host().IdleStates()
		if err != nil || got.HaltPoll != want {
			t.Errorf("%q: %s (%v), want %s", content, got.HaltPoll, err, want)
		}
	}
}

// TestIdleStatesOfThisMachine only grow.
func TestIdleStatesOfThisMachine(t *testing.T) {
	h, err := New(Options{ProcRoot: "/proc", SysRoot: "/sys"})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	first, err := h.IdleStates()
	if err != nil {
		t.Fatal(err)
	}
	second, err := h.IdleStates()
	if err != nil || len(second.States) != len(first.States) || !second.CPUs.Equal(first.CPUs) {
		t.Fatalf("%+v, then %+v (%v)", first, second, err)
	}
	for i := range first.States {
		if second.States[i].Time < first.States[i].Time {
			t.Errorf("state %s shrank from %s to %s", first.States[i].Name, first.States[i].Time, second.States[i].Time)
		}
	}
}

func TestLatencyHolders(t *testing.T) {
	tr := newTree(t)
	for pid, file := range map[int]string{7: "/dev/null", 8: "/dev/cpu_dma_latency", 9: "/dev/cpu_dma_latency", 10: "/dev/cpu_dma_latency"} {
		tr.link(file, fmt.Sprintf("proc/%d/fd/3", pid))
		tr.write(fmt.Sprintf("proc/%d/comm", pid), map[bool]string{true: "tuned\n", false: "cyclictest\n"}[pid < 10])
	}
	tr.write("proc/11/comm", "without files\n")
	got, err := tr.host().LatencyHolders()
	if diff := cmp.Diff([]string{"cyclictest", "tuned"}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestSleepArguments(t *testing.T) {
	for line, want := range map[string]string{
		"":                            "",
		"quiet splash idle=nomwait":   "",
		"intel_idle.max_cstate=0":     "",
		"intel_idle.max_cstate=9":     "",
		"processor.max_cstate=x idle": "",
		"ro intel_idle.max_cstate=1 processor.max_cstate=1 idle=poll cpuidle.off=1": "intel_idle.max_cstate=1 processor.max_cstate=1 idle=poll cpuidle.off=1",
		"processor.max_cstate=0 idle=halt cpuidle.off=0":                            "processor.max_cstate=0 idle=halt",
	} {
		tr := newTree(t)
		tr.write("proc/cmdline", line+"\n")
		if got := strings.Join(tr.host().sleepArguments(), " "); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

func TestSchedExt(t *testing.T) {
	tr := newTree(t)
	if err := tr.host().schedExt(); err != nil {
		t.Errorf("a kernel without it: %v", err)
	}
	tr.write("sys/kernel/sched_ext/state", "disabled\n")
	if err := tr.host().schedExt(); err != nil {
		t.Errorf("none is loaded: %v", err)
	}
	tr.write("sys/kernel/sched_ext/state", "enabled\n")
	tr.write("sys/kernel/sched_ext/root/ops", "lavd\n")
	if err := tr.host().schedExt(); err == nil || !strings.Contains(err.Error(), "lavd") {
		t.Errorf("one is loaded: %v", err)
	}
}
