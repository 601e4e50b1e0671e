package prometheus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/common/model"

	"github.com/joulevirt/joulevirt/internal/energy"
	power "github.com/joulevirt/joulevirt/internal/model"
)

// podKind is a family of counters of pods' joules. Its series are those of the
// packages only, as zones overlap, and of the node's dynamic energy only: Kepler
// 0.10 and newer divides no other, and no VM causes what an idle node draws.
type podKind interface {
	// selector picks the series of launcher pods that run.
	selector() string
	// pod names the pod that a series is of.
	pod(labels model.Metric) (uid, namespace, name string)
	// place says where a series belongs within its pod.
	place(labels model.Metric) place
}

// keplerPods is the series of Kepler 0.10 and newer.
type keplerPods struct{}

func (keplerPods) selector() string {
	return `kepler_pod_cpu_joules_total{pod_name=~"` + energy.LauncherPrefix + `.+",state!="terminated",zone="package"}`
}

func (keplerPods) pod(labels model.Metric) (uid, namespace, name string) {
	return string(labels["pod_id"]), string(labels["pod_namespace"]), string(labels["pod_name"])
}

func (keplerPods) place(labels model.Metric) place {
	return place{part: partPackage, unit: string(labels["path"])}
}

// legacyPods is the series of Kepler 0.9 and older, of which a container has one.
// kepler_container_joules_total is no such series: it adds up packages, memory
// and graphics.
type legacyPods struct{}

func (legacyPods) selector() string {
	return `kepler_container_package_joules_total{mode="dynamic",pod_name=~"` + energy.LauncherPrefix + `.+"}`
}

func (legacyPods) pod(labels model.Metric) (uid, namespace, name string) {
	return "", string(labels["container_namespace"]), string(labels["pod_name"])
}

func (legacyPods) place(labels model.Metric) place {
	p := place{part: partPackage, mode: string(labels["container_id"])}
	if modelled(labels) {
		p.part = partModelled
	}
	return p
}

// pods reads the power of VMs from a family of counters of pods.
type pods struct {
	kind     podKind
	window   time.Duration
	interval time.Duration
}

// vm is a launcher pod on a node.
type vm struct {
	node     string
	launcher energy.Launcher
}

// foundVMs is what a family has of VMs. A VM is either known or left out.
type foundVMs struct {
	readings map[vm]power.Power
	leftOut  map[vm]*energy.Refusal
}

// launcherMeters is the series of one vm.
type launcherMeters struct {
	meters
	// refusal is why they cannot be used, whatever they say.
	refusal *energy.Refusal
}

func (p pods) read(ctx context.Context, ask asker, nodes *index) (foundVMs, error) {
	matrix, err := askSeries(ctx, ask, p.kind.selector(), p.window)
	if err != nil {
		return foundVMs{}, err
	}
	return p.judge(matrix, nodes), nil
}

// judge turns series into the power of VMs.
func (p pods) judge(matrix model.Matrix, nodes *index) foundVMs {
	pages := pages{}
	all := map[vm]*launcherMeters{}
	for _, stream := range matrix {
		uid, namespace, name := p.kind.pod(stream.Metric)
		launcher, ok := energy.LauncherOfPod(uid, namespace, name)
		if !ok {
			continue
		}
		owners := nodes.find(stream.Metric)
		for _, node := range owners {
			at := vm{node, launcher}
			if all[at] == nil {
				all[at] = &launcherMeters{meters: meters{}}
			}
			all[at].add(p.kind.place(stream.Metric), stream)
			pages.note(node, stream)
			if len(owners) > 1 {
				all[at].refusal = energy.Refuse(energy.ReasonManySeries, "the labels of %s name several nodes", describe(stream.Metric))
			}
		}
	}
	found := foundVMs{readings: map[vm]power.Power{}, leftOut: map[vm]*energy.Refusal{}}
	for at, m := range all {
		if m.over(at.node, pages) {
			continue
		}
		if reading, refusal := p.power(m); refusal != nil {
			found.leftOut[at] = refusal
		} else {
			found.readings[at] = reading
		}
	}
	return found
}

func (m *launcherMeters) add(at place, stream *model.SampleStream) {
	s, refusal := fromMatrix(stream)
	if refusal != nil {
		m.refusal = refusal
		return
	}
	m.meters[at] = append(m.meters[at], s)
}

// over drops what an exporter shows no longer, such as a container that ended, and
// tells whether that is all: then the pod ended.
func (m *launcherMeters) over(node string, pages pages) bool {
	shown := func(s series) bool { return pages.show(node, s) }
	maps.DeleteFunc(m.meters, func(_ place, all []series) bool { return !slices.ContainsFunc(all, shown) })
	return m.refusal == nil && len(m.meters) == 0
}

// power returns the power of a vm.
func (p pods) power(m *launcherMeters) (power.Power, *energy.Refusal) {
	if m.refusal != nil {
		return power.Power{}, m.refusal
	}
	if names := p.names(m); len(names) > 1 {
		return power.Power{}, energy.Refuse(energy.ReasonManySeries, "the pods %v cannot be told apart by the names of their VMs", names)
	}
	reading, refusal := m.sum(partPackage, p.interval)
	if refusal != nil {
		return power.Power{}, refusal
	}
	if reading.Watts > mostWatts {
		return power.Power{}, energy.Refuse(energy.ReasonImplausible, "%v W are more than any machine draws", reading.Watts)
	}
	reading.Scope = power.ScopePackage
	return reading, nil
}

// names returns the names of the pods that the series are of: of several, when
// pods are known by their names only, and those of long names are cut alike.
func (p pods) names(m *launcherMeters) []string {
	names := map[string]bool{}
	for _, all := range m.meters {
		for _, s := range all {
			_, _, name := p.kind.pod(s.metric)
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// page is what is scraped at once of a node.
type page struct {
	node          string
	job, instance model.LabelValue
}

func pageOf(node string, labels model.Metric) page {
	return page{node, labels[model.JobLabel], labels[model.InstanceLabel]}
}

// pages has the time of each page's last scrape that showed a launcher.
type pages map[page]model.Time

func (p pages) note(node string, stream *model.SampleStream) {
	if count := len(stream.Values); count > 0 {
		at := pageOf(node, stream.Metric)
		p[at] = max(p[at], stream.Values[count-1].Timestamp)
	}
}

// show tells whether a series is on the last scrape of its page.
func (p pages) show(node string, s series) bool {
	return p[pageOf(node, s.metric)].Sub(s.last()) <= sameScrape
}

// readVMs asks for VMs. What fails is said and leaves out what it concerns: nodes
// are worth more.
func (s *Source) readVMs(ctx context.Context, nodes *index) (map[string]energy.VMs, error) {
	var failed []error
	all := foundVMs{readings: map[vm]power.Power{}, leftOut: map[vm]*energy.Refusal{}}
	for _, family := range s.pods {
		more, err := family.read(ctx, s.ask, nodes)
		if err != nil {
			err = fmt.Errorf("ask for the power of VMs: %w", err)
			s.last.Warnings = append(s.last.Warnings, shorten(err.Error()))
			failed = append(failed, err)
		}
		all.add(more)
	}
	vms := map[string]energy.VMs{}
	for at, reading := range all.readings {
		if vms[at.node] == nil {
			vms[at.node] = energy.VMs{}
		}
		vms[at.node][at.launcher] = reading
	}
	s.last.VMs = len(all.readings)
	s.last.VMsLeftOut = map[energy.Reason]int{}
	for _, refusal := range all.leftOut {
		s.last.VMsLeftOut[refusal.Reason]++
	}
	return vms, errors.Join(failed...)
}

// add takes over what a later family has of nodes that no earlier one has
// anything of.
func (f foundVMs) add(more foundVMs) {
	known := map[string]bool{}
	for at := range f.readings {
		known[at.node] = true
	}
	for at := range f.leftOut {
		known[at.node] = true
	}
	for at, reading := range more.readings {
		if !known[at.node] {
			f.readings[at] = reading
		}
	}
	for at, refusal := range more.leftOut {
		if !known[at.node] {
			f.leftOut[at] = refusal
		}
	}
}
