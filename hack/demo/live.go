package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"
	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/sim"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/accelerated"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/cluster/stack"
)

const (
	fleetNodes, fleetVMs = 8, 10
	// longest is how long the fleet runs, by its own time, and afterwards how long it goes
	// on once its levers are decided: what is held back is booked some hours late.
	longest, afterwards = 24 * time.Hour, 10 * time.Hour
	// pause is the least time that a pull of the fleet takes.
	pause = 15 * time.Millisecond
	// glance is the fleet's time between two looks at the API. On a terminal each is drawn,
	// elsewhere one each reprint.
	glance, reprint = 5 * time.Minute, 2 * time.Hour
	// hidden is what lever Affinity costs on the last node, which no model knows of.
	hidden = 0.35
)

// errDecided ends the fleet's run early.
var errDecided = errors.New("decided")

// fleet is the second cluster of the demo.
type fleet struct {
	*cluster.Cluster
	nodes *accelerated.Fleet
}

// live shows the fleet's levers prove themselves, beside this machine's VMs.
func (d *demo) live(ctx context.Context) (err error) {
	if err := d.apply(ctx, "2-profile.yaml"); err != nil {
		return err
	}
	if err := d.waitInForce(ctx, len(d.vms)); err != nil {
		return err
	}
	d.say("   a second API server, with the product's controllers and %d simulated nodes of %d VMs each, whose clock goes faster;", fleetNodes, fleetVMs)
	d.say("   on the last of them pins cost %.0f %% more energy than any model knows. The simulation keeps this machine's", 100*hidden)
	d.say("   cores busy, so its own VMs may lose their pins meanwhile (CoreWouldBeHot)")
	f, err := d.startFleet(ctx)
	if err != nil {
		return err
	}
	d.fleet = f
	return d.watch(ctx, f)
}

func (d *demo) startFleet(ctx context.Context) (f *fleet, err error) {
	f = &fleet{}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.stop())
		}
	}()
	f.Cluster, err = cluster.Start(ctx, cluster.Options{Binaries: binaries.FromEnvironment(os.Getenv, io.Discard), KubeVirt: cluster.KubeVirtAPI})
	if err != nil {
		return f, err
	}
	if err := v1alpha1.AddToScheme(f.Client().Scheme()); err != nil {
		return f, err
	}
	if err := stack.Install(ctx, f.Cluster); err != nil {
		return f, err
	}
	f.nodes, err = accelerated.Start(ctx, accelerated.Options{
		Cluster: f.Cluster, Namespace: namespace, Labels: map[string]string{"app": "web"},
		Nodes: fleetNodes, VMs: fleetVMs, Seed: 1, Dir: filepath.Join(d.manifests, "journals"), Log: logr.Discard(),
		Harm: func(node int) sim.Harm {
			if node == fleetNodes-1 {
				return sim.Harm{Affinity: hidden}
			}
			return sim.Harm{}
		},
	})
	if err != nil {
		return f, err
	}
	manifest := filepath.Join(d.manifests, "4-fleet.yaml")
	d.say("$ kubectl apply -f hack/demo/manifests/4-fleet.yaml")
	_, err = f.RunKubectl(ctx, "apply", "-f", manifest)
	return f, err
}

// stop ends what there is of the fleet.
func (f *fleet) stop() error {
	var problems []error
	if f.nodes != nil {
		problems = append(problems, f.nodes.Stop())
	}
	if f.Cluster != nil {
		problems = append(problems, f.Stop())
	}
	return errors.Join(problems...)
}

// watch runs the fleet and draws the table.
func (d *demo) watch(ctx context.Context, f *fleet) error {
	began, start := time.Now(), f.nodes.Now()
	screen := newScreen(d.out)
	var looked, decided time.Time
	err := f.nodes.Run(ctx, longest, pause, func(now time.Time) error {
		if now.Sub(looked) < glance {
			return nil
		}
		looked = now
		shown, err := d.look(ctx, f)
		if err != nil {
			return err
		}
		shown.passed, shown.took = now.Sub(start), time.Since(began)
		screen.draw(shown, now)
		switch {
		case !isDecided(shown.fleet):
			decided = time.Time{}
		case decided.IsZero():
			decided = now
		case now.Sub(decided) >= afterwards:
			return errDecided
		}
		return nil
	})
	if err != nil && !errors.Is(err, errDecided) {
		return err
	}
	return d.summarise(ctx, f)
}

// isDecided tells whether no lever is tried, or waits for it.
func isDecided(policy *v1alpha1.EnergyPolicy) bool {
	for i := range policy.Status.Trials {
		switch policy.Status.Trials[i].Stance {
		case v1alpha1.Stance(model.StanceAdopted), v1alpha1.Stance(model.StanceRejected), v1alpha1.Stance(model.StanceUndecided):
		default:
			return false
		}
	}
	return len(policy.Status.Trials) > 0
}

// look reads a frame from both API servers.
func (d *demo) look(ctx context.Context, f *fleet) (*frame, error) {
	shown := &frame{fleet: &v1alpha1.EnergyPolicy{}, reports: map[string]*v1alpha1.NodeReport{}}
	if err := f.Client().Get(ctx, client.ObjectKey{Name: "fleet"}, shown.fleet); err != nil {
		return nil, err
	}
	for _, of := range []struct {
		client client.Client
		only   string
		plans  *[]v1alpha1.NodePlan
	}{{d.stack.Client(), nodeName, &shown.real}, {f.Client(), "", &shown.nodes}} {
		var plans v1alpha1.NodePlanList
		var reports v1alpha1.NodeReportList
		if err := errors.Join(of.client.List(ctx, &plans), of.client.List(ctx, &reports)); err != nil {
			return nil, err
		}
		*of.plans = slices.DeleteFunc(plans.Items, func(p v1alpha1.NodePlan) bool { return of.only != "" && p.Name != of.only })
		for i := range reports.Items {
			shown.reports[reports.Items[i].Name] = &reports.Items[i]
		}
	}
	return shown, nil
}

// summarise tells how it ended, by the API and by the simulator, and where to look.
func (d *demo) summarise(ctx context.Context, f *fleet) error {
	shown, err := d.look(ctx, f)
	if err != nil {
		return err
	}
	d.say("\n   What the product says that it saved, measured by the nodes' meters, which are simulated:")
	for i := range shown.fleet.Status.Savings {
		s := &shown.fleet.Status.Savings[i]
		if s.Period != "Total" {
			continue
		}
		d.say("   %s: %s kWh (%s to %s), less what it drew itself; %s J/GB instead of %s", s.Basis,
			s.KilowattHours.Value, s.KilowattHours.Low, s.KilowattHours.High, s.JoulesPerGB, perGBWithout(s))
		if s.Cost != nil && s.KilogramsCO2 != nil {
			d.say("   that is %s EUR and %s kg CO2e, at 0.28 EUR and 380 g a kWh", s.Cost.Value, s.KilogramsCO2.Value)
		}
	}
	with, without := f.nodes.Truth()
	d.say("   What the simulator knows, by twins without the product: %.4f kWh saved of %.3f (%.1f %%)",
		kWh(without-with), kWh(without), 100*float64((without-with)/without))
	d.say("   The fleet's API server, which has a kubeconfig of its own:")
	d.say("$ export KUBECONFIG=%s", f.Kubeconfig())
	for _, args := range [][]string{
		{"get", "energypolicies,energyledgers"},
		{"get", "nodeplans"},
		{"get", "events", "-A", "--field-selector", "involvedObject.kind=EnergyPolicy"},
		{"get", "energypolicy", "fleet", "-o", `jsonpath={range .status.trials[*]}{.lever}{" "}{.class}{": "}{.message}{"\n"}{end}`},
	} {
		d.say("$ kubectl %s", pasted(args))
		out, err := f.RunKubectl(ctx, args...)
		if err != nil {
			return err
		}
		d.print(out)
	}
	return nil
}

func perGBWithout(s *v1alpha1.Savings) v1alpha1.Decimal {
	if s.JoulesPerGBWithout == nil {
		return "?"
	}
	return s.JoulesPerGBWithout.Value
}

func kWh(joules units.Joules) float64 {
	const joulesPerKWh = 3.6e6
	return float64(joules) / joulesPerKWh
}

// screen draws frames over one another on a terminal, and one below the other elsewhere.
type screen struct {
	out io.Writer
	// terminal is nil when there is none.
	terminal *os.File
	// lines of the frame that was drawn last, and its time by the fleet's clock.
	lines int
	drawn time.Time
}

func newScreen(out io.Writer) *screen {
	s := &screen{out: out}
	if file, ok := out.(*os.File); ok && term.IsTerminal(file.Fd()) {
		s.terminal = file
	}
	return s
}

func (s *screen) draw(f *frame, now time.Time) {
	if s.terminal == nil {
		if now.Sub(s.drawn) >= reprint {
			s.drawn = now
			fmt.Fprintln(s.out, f)
		}
		return
	}
	lines := strings.Split(f.String(), "\n")
	if width, _, err := term.GetSize(s.terminal.Fd()); err == nil {
		// A line that wraps would be two to go up.
		for i := range lines {
			lines[i] = ansi.Truncate(lines[i], width, "")
		}
	}
	if s.lines > 0 {
		fmt.Fprint(s.out, ansi.CursorUp(s.lines)+ansi.EraseScreenBelow)
	}
	fmt.Fprintln(s.out, strings.Join(lines, "\n"))
	s.lines = len(lines)
}
