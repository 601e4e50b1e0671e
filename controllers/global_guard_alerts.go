package controllers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/guards"
)

// alertInterval is how often each alert is asked for.
const alertInterval = 30 * time.Second

// The labels by which a series names a VM, or a node.
const (
	labelNamespace = "namespace"
	labelName      = "name"
	labelNode      = "node"
)

// alertKey is a policy's alert, with its query: another one is another alert.
type alertKey struct{ policy, name, query string }

// alertAnswer is what became of the last question.
type alertAnswer struct {
	// err says why there is none. Nil: there is.
	err error
	// strangers are series that name no VM or node.
	strangers int
}

// alerts asks for all policies' alerts when it is time, and waits for none of them.
func (g *globalGuard) alerts(ctx context.Context) error {
	now := g.clock.Now()
	if since := now.Sub(g.asked); since >= 0 && since < alertInterval {
		return nil
	}
	g.asked = now
	governed, err := governedNodes(ctx, g.reader)
	if err != nil {
		return err
	}
	nodes := map[string][]string{}
	for i := range governed {
		nodes[governed[i].policy] = append(nodes[governed[i].policy], governed[i].node.Name)
	}
	var policies v1alpha1.EnergyPolicyList
	if err := g.reader.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list EnergyPolicies: %w", err)
	}
	wanted := map[string][]string{}
	keys := map[alertKey]bool{}
	for i := range policies.Items {
		policy := &policies.Items[i]
		for _, alert := range policy.Spec.Guardrails.Alerts {
			keys[alertKey{policy.Name, alert.Name, alert.Query}] = true
			for _, node := range nodes[policy.Name] {
				wanted[node] = append(wanted[node], alert.Name)
			}
			g.start(ctx, policy, alert, nodes[policy.Name])
		}
	}
	g.forget(keys)
	for _, node := range g.store.Alerts(wanted) {
		g.replan(ctx, node)
	}
	g.regroups(ctx)
	return nil
}

// start asks for one alert, unless it still is being asked for.
func (g *globalGuard) start(ctx context.Context, policy *v1alpha1.EnergyPolicy, alert v1alpha1.Alert, nodes []string) {
	key := alertKey{policy.Name, alert.Name, alert.Query}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy[key] {
		return
	}
	g.busy[key] = true
	settings := observe.EnergySettings(policy)
	g.asking.Go(func() {
		answer := g.ask(ctx, settings, alert, nodes)
		g.mu.Lock()
		delete(g.busy, key)
		if ctx.Err() != nil {
			g.mu.Unlock()
			return // the manager ends: what was not answered says nothing of the server
		}
		was, known := g.answers[key]
		g.answers[key] = answer
		g.mu.Unlock()
		if !known || fmt.Sprint(was) != fmt.Sprint(answer) {
			g.changed(ctx)
		}
	})
}

// ask asks for one alert and takes the answer in.
func (g *globalGuard) ask(ctx context.Context, settings []energy.Setting, alert v1alpha1.Alert, nodes []string) alertAnswer {
	at := slices.IndexFunc(settings, func(s energy.Setting) bool { return s.Type == model.SourcePrometheus })
	if at < 0 {
		g.store.Unanswered(alert.Name, nodes)
		return alertAnswer{err: energy.Refuse(v1alpha1.ReasonNoServer, "spec.energy.sources names no Prometheus server: add one")}
	}
	labels, err := g.asker.Labels(ctx, settings[at].Server, alert.Query)
	if err != nil {
		g.store.Unanswered(alert.Name, nodes)
		return alertAnswer{err: err}
	}
	answer := alertAnswer{}
	var named []guards.Named
	for _, series := range labels {
		of := g.named(ctx, series)
		if named = append(named, of...); len(of) == 0 {
			answer.strangers++
		}
	}
	for _, node := range g.store.Answered(guards.Alert{Name: alert.Name, Levers: alertLevers(alert)}, named, nodes) {
		g.replan(ctx, node)
	}
	g.regroups(ctx)
	return answer
}

// named finds what a series names: the launcher pods of a VM, or a node. None: neither is
// known.
func (g *globalGuard) named(ctx context.Context, labels map[string]string) []guards.Named {
	if labels[labelNamespace] != "" && labels[labelName] != "" {
		vmi := &virtv1.VirtualMachineInstance{}
		if err := g.reader.Get(ctx, types.NamespacedName{Namespace: labels[labelNamespace], Name: labels[labelName]}, vmi); err != nil {
			return nil
		}
		var out []guards.Named
		for pod, node := range vmi.Status.ActivePods {
			out = append(out, guards.Named{Node: node, PodUID: string(pod)})
		}
		return out
	}
	if node := labels[labelNode]; node != "" {
		return []guards.Named{{Node: node}}
	}
	return nil
}

func alertLevers(alert v1alpha1.Alert) []model.Lever {
	if len(alert.Levers) == 0 {
		return append(model.NodeLevers(), model.LeverTrafficShare)
	}
	var out []model.Lever
	for _, lever := range alert.Levers {
		out = append(out, model.Lever(lever))
	}
	return out
}

// forget drops the answers of alerts that no policy has any more.
func (g *globalGuard) forget(wanted map[alertKey]bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.answers, func(key alertKey, _ alertAnswer) bool { return !wanted[key] })
}

// answer returns the last answer to a policy's alert. False: there was none yet.
func (g *globalGuard) answer(policy string, alert *v1alpha1.Alert) (alertAnswer, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	answer, known := g.answers[alertKey{policy, alert.Name, alert.Query}]
	return answer, known
}
