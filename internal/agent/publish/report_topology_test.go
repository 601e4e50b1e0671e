package publish

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/units"
)

// hybrid is a machine with two classes of cores under one cache, and all else that a
// topology can tell.
func hybrid() model.Topology {
	return model.Topology{
		Cores: []model.Core{
			{CPUs: units.NewCPUSet(0, 1), Class: model.CorePerformance},
			{CPUs: units.NewCPUSet(2, 3), Class: model.CorePerformance},
			{CPUs: units.NewCPUSet(4), Class: model.CoreEfficiency},
			{CPUs: units.NewCPUSet(5), Class: model.CoreEfficiency, NUMANode: 1, LLC: 1, Package: 1},
		},
		Isolated: units.NewCPUSet(5), Exclusive: units.NewCPUSet(2, 3), Reserved: units.NewCPUSet(0),
		IdleStates: []model.IdleState{
			{Name: "C1", ExitLatency: time.Microsecond, TargetResidency: time.Microsecond},
			{Name: "C10", ExitLatency: 680 * time.Microsecond, TargetResidency: 2 * time.Millisecond},
		},
		NICs:     []model.NIC{{Name: "eno1", CPUs: units.NewCPUSet(0, 4)}, {Name: "eno2", NUMANode: 1, CPUs: units.NewCPUSet(5)}},
		Clocks:   model.Clocks{Governor: "powersave", FollowLoad: true, Lowest: 800, Highest: 4900, Base: 2100},
		CPUModel: "m", Nested: true,
	}
}

func TestReportTellsTheWholeTopology(t *testing.T) {
	f := findings(0)
	f.State.Topology = hybrid()
	f.State.Actors = []host.Actor{
		{Name: host.ActorCPUManager, CPUs: units.NewCPUSet(2, 3), Message: "words"},
		{Name: host.ActorTuned, Message: strings.Repeat("é", maxMessage)},
	}
	status := Report(f, nil, start())
	if diff := cmp.Diff([]v1alpha1.CoreGroup{
		{Cores: []string{"0-1", "2-3"}, Class: v1alpha1.CorePerformance},
		{Cores: []string{"4"}, Class: v1alpha1.CoreEfficiency},
		{Cores: []string{"5"}, Package: 1, NUMANode: 1, LLC: 1, Class: v1alpha1.CoreEfficiency},
	}, status.Topology.CoreGroups); diff != "" {
		t.Errorf("core groups (-want +got):\n%s", diff)
	}
	if len(status.Actors) != 2 || status.Actors[0] != (v1alpha1.Actor{Name: "KubeletCPUManager", CPUs: "2-3", Message: "words"}) ||
		len(status.Actors[1].Message) > maxMessage {
		t.Errorf("actors %+v", status.Actors)
	}
	got, err := observe.Topology(status.Topology)
	if diff := cmp.Diff(hybrid(), got); err != nil || diff != "" {
		t.Errorf("what the manager reads: %v (-want +got):\n%s", err, diff)
	}
}

func TestReportsOfWhatChanges(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*State)
		due    bool
	}{
		"interrupts moved":     {func(s *State) { s.Topology.NICs[0].CPUs = units.NewCPUSet(3) }, false},
		"a card is gone":       {func(s *State) { s.Topology.NICs = s.Topology.NICs[:1] }, true},
		"a card on another":    {func(s *State) { s.Topology.NICs[0].NUMANode = 1 }, true},
		"CPUs were given away": {func(s *State) { s.Topology.Exclusive = units.NewCPUSet(3) }, true},
		"an idle state is off": {func(s *State) { s.Topology.IdleStates = s.Topology.IdleStates[:1] }, true},
		"another governor":     {func(s *State) { s.Topology.Clocks = model.Clocks{Governor: "performance", Highest: 4900} }, true},
		"another actor":        {func(s *State) { s.Actors = []host.Actor{{Name: host.ActorTuned}} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := findings(0)
			f.State.Topology = hybrid()
			before := Report(f, nil, start())
			test.change(f.State)
			after := Report(f, &before, start().Add(time.Minute))
			if due := ReportDue(&before, after); due != test.due {
				t.Errorf("due %v, want %v", due, test.due)
			}
			if before.Topology.NICs[0].InterruptCPUs != "0,4" {
				t.Error("asking whether a report is due changed it")
			}
			if !ReportDue(&before, Report(f, &before, start().Add(ReportInterval))) {
				t.Error("not due after the interval, which brings what moved")
			}
		})
	}
}

// crowd fills all that a report has room for, with lists of CPUs that no range shortens.
func crowd(f *Findings) {
	var scattered units.CPUSet
	for cpu := range 256 {
		scattered = scattered.Union(units.NewCPUSet(2 * cpu))
	}
	for i := range 40 {
		f.State.Topology.NICs = append(f.State.Topology.NICs, model.NIC{Name: fmt.Sprintf("enp%ds0f0np0", i), CPUs: scattered})
		f.State.Topology.IdleStates = append(f.State.Topology.IdleStates, model.IdleState{Name: fmt.Sprint("C", i), ExitLatency: time.Hour, TargetResidency: -1})
		f.State.Actors = append(f.State.Actors, host.Actor{Name: host.ActorName(fmt.Sprint("Actor", i)), CPUs: scattered, Message: strings.Repeat("m", 300)})
	}
}

func TestReportsOfLargeMachines(t *testing.T) {
	for name, test := range map[string]struct {
		cores, perCache int
		siblings        bool
		classes         bool
		complete        bool
	}{
		"64 cores of two classes":                       {64, 8, true, true, true},
		"256 cores with siblings of two classes":        {256, 16, true, true, true},
		"384 cores with siblings":                       {384, 16, true, false, true},
		"512 cores of two classes":                      {512, 64, false, true, true},
		"512 cores with siblings, in many small caches": {512, 4, true, true, false},
		"4096 cores": {4096, 64, false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := findings(0)
			for i := range test.cores {
				core := model.Core{CPUs: units.NewCPUSet(i), Package: i * 2 / test.cores, NUMANode: i * 8 / test.cores, LLC: i / test.perCache}
				if test.siblings {
					core.CPUs = units.NewCPUSet(i, i+test.cores)
				}
				if test.classes {
					core.Class = model.CorePerformance
					if i%2 == 1 {
						core.Class = model.CoreEfficiency
					}
				}
				f.State.Topology.Cores = append(f.State.Topology.Cores, core)
			}
			crowd(&f)
			status := Report(f, nil, start())
			if n := size(&status); n > maxReport {
				t.Errorf("%d bytes", n)
			}
			if n := max(len(status.Actors), len(status.Topology.NICs), len(status.Topology.IdleStates)); n > maxItems {
				t.Errorf("a list of %d", n)
			}
			if complete := len(status.Topology.CoreGroups) > 0; complete != test.complete ||
				complete != meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady) {
				t.Errorf("complete %v, want %v and Ready to tell", complete, test.complete)
			}
			if !test.complete {
				return
			}
			got, err := observe.Topology(status.Topology)
			if diff := cmp.Diff(f.State.Topology.Cores, got.Cores); err != nil || diff != "" {
				t.Errorf("what the manager reads: %v (-want +got):\n%s", err, diff)
			}
		})
	}
}
