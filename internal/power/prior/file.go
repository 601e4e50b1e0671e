package prior

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// schema is the version of the file's form that this code reads.
const schema = 1

// Priors is the file of priors.
type Priors struct {
	// Schema is the version of the form.
	Schema int `json:"schema"`
	// Tables is the digest of the tables that the priors were fitted to.
	Tables string `json:"tables"`
	// Curves of VMs on KVM without buffering.
	Curves Curves `json:"curves"`
	// Study is the power of a host like the studies'.
	Study Study `json:"node"`
	// Buffering and Affinity are what the two levers save.
	Buffering Buffering `json:"buffering"`
	Affinity  Affinity  `json:"affinity"`
	// SRIOV is an SR-IOV network device's cost by that of a virtio device.
	SRIOV SRIOV `json:"sriov"`
	// Fits tell how well the tables are reproduced.
	Fits []Fit `json:"fits"`
}

// Origin says where a figure comes from.
type Origin string

// The origins.
const (
	// Fitted to the tables.
	Fitted Origin = "fitted"
	// Chosen because no table has it.
	Chosen Origin = "chosen"
)

// Figure is one parameter.
type Figure struct {
	Value float64 `json:"value"`
	// StdDev is the standard deviation of Value for a host that nothing was
	// measured of, which is much more than the error of the fit. It is chosen
	// where the notes of the design say so.
	StdDev float64 `json:"stdDev"`
	Unit   string  `json:"unit"`
	Origin Origin  `json:"origin"`
}

// Curve is a curve's terms, see curve.Terms.
type Curve struct {
	Idle    Figure `json:"idle"`
	Packets Figure `json:"packets"`
	Few     Figure `json:"few"`
	Some    Figure `json:"some"`
	Many    Figure `json:"many"`
	Bits    Figure `json:"bits"`
}

// Curves of VMs with one vCPU, and of those with more.
type Curves struct {
	CoresOne    Curve `json:"coresOneVCPU"`
	CoresMore   Curve `json:"coresMoreVCPUs"`
	WakeUpsOne  Curve `json:"wakeUpsOneVCPU"`
	WakeUpsMore Curve `json:"wakeUpsMoreVCPUs"`
	// CoresForm and WakeUpsForm are the relative errors of the form of curve: what
	// the fit misses of published totals, for its degrees of freedom.
	CoresForm   Figure `json:"coresForm"`
	WakeUpsForm Figure `json:"wakeUpsForm"`
	// Xen is how many times the CPU time that KVM takes Xen took for the same
	// traffic.
	Xen Figure `json:"xenOverKVM"`
}

// Study is the power of a host of the studies.
type Study struct {
	// Cores is its number of physical cores.
	Cores       int    `json:"cores"`
	Idle        Figure `json:"idle"`
	PerBusyCore Figure `json:"perBusyCore"`
	PerWakeUp   Figure `json:"perWakeUp"`
	PerAwake    Figure `json:"perAwakeCore"`
	// Noise is the standard deviation of a measured power around the model.
	Noise Figure `json:"noise"`
	// CoresExponent is how PerBusyCore depends on the number of cores n: it
	// falls with n to the power of it.
	CoresExponent Figure `json:"coresExponent"`
	// WallIdle and WallSlope lead from the packages' power to the whole
	// machine's: WallIdle + WallSlope times it.
	WallIdle  Figure `json:"wallIdle"`
	WallSlope Figure `json:"wallSlope"`
}

// Buffering is the share of a VM's dynamic cost that a window w saves:
// Most * w / (w + Half).
type Buffering struct {
	Most Figure `json:"most"`
	Half Figure `json:"halfWindow"`
	// Longest is the longest window that was measured: a longer one counts as
	// this.
	Longest Figure `json:"longestWindow"`
}

// Affinity is the share of VMs' dynamic power that is saved by pinning each vCPU to
// a core, and by keeping VMs on a part of the cores.
type Affinity struct {
	Pinned    Figure `json:"pinned"`
	Separated Figure `json:"separated"`
}

// SRIOV is an SR-IOV device's cost over a virtio device's. It is for people who
// compare: VMs with such devices have no tap, and so no curve.
type SRIOV struct {
	Cores   Figure `json:"cores"`
	WakeUps Figure `json:"wakeUps"`
}

// Fit tells how well one table is reproduced.
type Fit struct {
	Table    string `json:"table"`
	Quantity string `json:"quantity"`
	Unit     string `json:"unit"`
	// Values and Parameters of the fit, which may span several tables.
	// Parameters 0: the table was not fitted, it is a check.
	Values     int `json:"values"`
	Parameters int `json:"parameters"`
	// DegreesOfFreedom are Values less Parameters. 0: that the values are met
	// says nothing.
	DegreesOfFreedom int `json:"degreesOfFreedom"`
	// R2 is the share of this table's variance that is explained; null when the
	// table has one value. It is below 0 when the table's mean would do better.
	R2   *float64 `json:"r2"`
	RMSE float64  `json:"rmse"`
	// MaxRelativeError is the largest of Points, without its sign.
	MaxRelativeError float64 `json:"maxRelativeError"`
	Note             string  `json:"note,omitempty"`
	Points           []Point `json:"points"`
}

// Point is one published value.
type Point struct {
	At       string  `json:"at"`
	Measured float64 `json:"measured"`
	Fitted   float64 `json:"fitted"`
	// RelativeError is Fitted over Measured, less 1.
	RelativeError float64 `json:"relativeError"`
}

// Parse reads a file of priors and checks it. An error names the figure that is
// wrong.
func Parse(text []byte) (Priors, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var version struct {
		Schema int `json:"schema"`
	}
	if err := json.Unmarshal(text, &version); err != nil {
		return Priors{}, fmt.Errorf("file of priors: %w", err)
	}
	if version.Schema != schema {
		return Priors{}, fmt.Errorf("file of priors: schema %d; this program reads %d", version.Schema, schema)
	}
	var p Priors
	if err := decoder.Decode(&p); err != nil {
		return Priors{}, fmt.Errorf("file of priors: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Priors{}, errors.New("file of priors: something follows its end")
	}
	if err := p.validate(); err != nil {
		return Priors{}, fmt.Errorf("file of priors: %w", err)
	}
	return p, nil
}

func (p *Priors) validate() error {
	if p.Tables == "" || p.Study.Cores < 1 {
		return errors.New("no digest of the tables, or a host without cores")
	}
	for _, named := range p.Figures() {
		if err := named.Figure.validate(); err != nil {
			return fmt.Errorf("%s: %w", named.Name, err)
		}
	}
	for name, share := range map[string]float64{
		"buffering.most": p.Buffering.Most.Value, "affinity.pinned": p.Affinity.Pinned.Value, "affinity.separated": p.Affinity.Separated.Value,
		"node.coresExponent": p.Study.CoresExponent.Value,
	} {
		if share >= 1 {
			return fmt.Errorf("%s: %v is not below 1", name, share)
		}
	}
	for name, figure := range map[string]Figure{
		"buffering.halfWindow": p.Buffering.Half, "buffering.longestWindow": p.Buffering.Longest,
		"node.perBusyCore": p.Study.PerBusyCore, "node.noise": p.Study.Noise, "curves.xenOverKVM": p.Curves.Xen,
	} {
		if !(figure.Value > 0) {
			return fmt.Errorf("%s: %v is not above 0", name, figure.Value)
		}
	}
	return nil
}

// most is beyond any figure, and products of figures are still finite.
const most = 1e12

// validate checks that a figure is a number that is not negative, with a
// standard deviation, a unit and an origin.
func (f Figure) validate() error {
	switch {
	case !(f.Value >= 0 && f.Value <= most):
		return fmt.Errorf("the value %v is negative, or no number below %g", f.Value, most)
	case !(f.StdDev >= 0 && f.StdDev <= most):
		return fmt.Errorf("the standard deviation %v is negative, or no number below %g", f.StdDev, most)
	case f.Unit == "":
		return errors.New("no unit")
	case f.Origin != Fitted && f.Origin != Chosen:
		return fmt.Errorf("the origin %q is neither %q nor %q", f.Origin, Fitted, Chosen)
	}
	return nil
}

// NamedFigure is a figure with its place in the file.
type NamedFigure struct {
	Name   string
	Figure Figure
}

// Figures returns all parameters in the order of the file.
func (p *Priors) Figures() []NamedFigure {
	var figures []NamedFigure
	for _, c := range []struct {
		name  string
		curve Curve
	}{
		{"coresOneVCPU", p.Curves.CoresOne}, {"coresMoreVCPUs", p.Curves.CoresMore},
		{"wakeUpsOneVCPU", p.Curves.WakeUpsOne}, {"wakeUpsMoreVCPUs", p.Curves.WakeUpsMore},
	} {
		at := "curves." + c.name + "."
		figures = append(figures,
			NamedFigure{at + "idle", c.curve.Idle}, NamedFigure{at + "packets", c.curve.Packets}, NamedFigure{at + "few", c.curve.Few},
			NamedFigure{at + "some", c.curve.Some}, NamedFigure{at + "many", c.curve.Many}, NamedFigure{at + "bits", c.curve.Bits})
	}
	return append(figures, []NamedFigure{
		{"curves.coresForm", p.Curves.CoresForm}, {"curves.wakeUpsForm", p.Curves.WakeUpsForm}, {"curves.xenOverKVM", p.Curves.Xen},
		{"node.idle", p.Study.Idle}, {"node.perBusyCore", p.Study.PerBusyCore}, {"node.perWakeUp", p.Study.PerWakeUp},
		{"node.perAwakeCore", p.Study.PerAwake}, {"node.noise", p.Study.Noise}, {"node.coresExponent", p.Study.CoresExponent},
		{"node.wallIdle", p.Study.WallIdle}, {"node.wallSlope", p.Study.WallSlope},
		{"buffering.most", p.Buffering.Most}, {"buffering.halfWindow", p.Buffering.Half}, {"buffering.longestWindow", p.Buffering.Longest},
		{"affinity.pinned", p.Affinity.Pinned}, {"affinity.separated", p.Affinity.Separated}, {"sriov.cores", p.SRIOV.Cores}, {"sriov.wakeUps", p.SRIOV.WakeUps},
	}...)
}
