package explain

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/figures"
	"github.com/joulevirt/joulevirt/internal/cli/savings"
)

// knownEnergy has a figure of each kind.
func knownEnergy() Energy {
	return Energy{
		Now: &figures.Detail{
			Node: figures.Node{Watts: ptr.To(300.0), Source: "RAPL", AgeSeconds: ptr.To(3.0)}, VMWatts: ptr.To(4.5), ExportedWatts: ptr.To(5.0),
			Proven: []figures.LeverWatts{{Lever: v1alpha1.LeverAffinity, Watts: 9, LowWatts: ptr.To(7.0), HighWatts: ptr.To(11.0)}},
			Potential: []figures.LeverWatts{
				{Lever: v1alpha1.LeverAffinity, Watts: 8, LowWatts: ptr.To(-1.0), HighWatts: ptr.To(17.0)},
				{Lever: v1alpha1.LeverBuffering, LowWatts: ptr.To(0.0), HighWatts: ptr.To(0.0)}, {Lever: v1alpha1.LeverShaping, Watts: -2},
			},
		},
		Booked: []savings.Unit{{Unit: "a", Lever: v1alpha1.LeverAffinity, Basis: v1alpha1.BasisMeasured, KilowattHours: 1.5, LowKilowattHours: 1, HighKilowattHours: 2}},
	}
}

func rowsBelow(e *Explanation, heading string) [][]string {
	for _, table := range e.Tables() {
		if strings.HasPrefix(table.Heading, heading) {
			return table.Rows
		}
	}
	return nil
}

// TestPotentialWithoutPrometheus: the policy's status names the nodes with the most.
func TestPotentialWithoutPrometheus(t *testing.T) {
	in := vm()
	in.Policy.Status.PotentialNodes = []v1alpha1.NodePotential{
		{Name: "b", Levers: []v1alpha1.Saving{{Lever: v1alpha1.LeverAffinity, Modelled: true, Milliwatts: 90_000}}},
		{Name: "a", Levers: []v1alpha1.Saving{{Lever: v1alpha1.LeverBuffering, Modelled: true, Milliwatts: 2500, LowMilliwatts: 500, HighMilliwatts: 4500}}},
	}
	for name, want := range map[string][][]string{"a": {{"Buffering", "2.5", "0.5 to 4.5", "it would save"}}, "c": nil} {
		e := Node(NodeInput{Name: name, Plan: in.Plan, Policy: in.Policy, Energy: Energy{Unknown: "no server answers"}}, now())
		if diff := cmp.Diff(want, rowsBelow(e, "What levers could save on the node")); diff != "" {
			t.Errorf("node %s (-want +got):\n%s", name, diff)
		}
	}
}

// TestEnergy: each figure says what it is of, whether it was measured, and its interval where
// it has one.
func TestEnergy(t *testing.T) {
	in := vm()
	in.Energy = knownEnergy()
	ofVM := VM(in, now())
	ofNode := Node(NodeInput{Name: "a", Plan: in.Plan, Policy: in.Policy, Energy: knownEnergy()}, now())
	node := []string{"node/a", "300", "Measured", "RAPL", "3s", meansMeasured}
	const name = "virtualmachineinstance.kubevirt.io/web-0"
	foretold := [][]string{
		{"Affinity", "8", "-1 to 17", "it would save, or cost: the interval has both"},
		{"Buffering", "0", "0 to 0", "nothing at its present load"}, {"Shaping", "-2", "<none>", "it would cost energy"},
	}
	for heading, want := range map[string][][]string{
		"Power now":                              {{name, "4.5", "Modelled", "Agent", "<none>", meansShare}, {name, "5", "Modelled", "Exporter", "<none>", meansExported}, node},
		"What levers in force save on the node":  {{"Affinity", "9", "7 to 11"}},
		"Saved on the node":                      {{"Affinity", "Measured", "1.5", "1 to 2"}},
		"What levers could save on the node, ag": foretold,
	} {
		if diff := cmp.Diff(want, rowsBelow(ofVM, heading)); diff != "" {
			t.Errorf("VM: %s (-want +got):\n%s", heading, diff)
		}
		if heading == "Power now" {
			want = [][]string{node}
			ofNode.Drawn = ofNode.Drawn[len(ofNode.Drawn)-1:] // the meter is asked for no VM
		}
		if diff := cmp.Diff(want, rowsBelow(ofNode, heading)); diff != "" {
			t.Errorf("node: %s (-want +got):\n%s", heading, diff)
		}
	}
}

// TestEnergyUnknown: what is not known is said to be, why, and is no zero.
func TestEnergyUnknown(t *testing.T) {
	for name, tc := range map[string]struct {
		energy Energy
		report *v1alpha1.NodeReport
		drawn  [][]string
		want   map[string]string
	}{
		"nobody was asked":  {Energy{Unknown: "no server is named"}, nil, nil, map[string]string{"what levers save now": "not known: no server is named"}},
		"it did not answer": {Energy{}, nil, nil, map[string]string{}},
		"it knows nothing": {Energy{Now: &figures.Detail{}}, nil, nil, map[string]string{
			"power of the VM":                    "not known: its agent tells with --per-vm-metrics, while the node's power is known",
			"what levers could save on the node": "not known: no VM of the node was seen for long enough, or none may be acted on",
		}},
		"the report knows": {Energy{}, modelledReport(), [][]string{{"node/a", "200", "Modelled", "Model", "<none>", meansModelled}}, map[string]string{}},
	} {
		in := vm()
		in.Energy, in.Report = tc.energy, tc.report
		e := VM(in, now())
		if diff := cmp.Diff(tc.drawn, rowsBelow(e, "Power now")); diff != "" {
			t.Errorf("%s: power (-want +got):\n%s", name, diff)
		}
		got := map[string]string{}
		for _, input := range e.Inputs {
			if strings.HasPrefix(input.Value, "not known: ") {
				got[input.Name] = input.Value
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: what is not known (-want +got):\n%s", name, diff)
		}
	}
}

// modelledReport is of a node without a meter.
func modelledReport() *v1alpha1.NodeReport {
	report := nodeReport(nil)
	report.Status.Power = v1alpha1.Power{Source: v1alpha1.PowerModel, Watts: ptr.To(int64(200))}
	return report
}
