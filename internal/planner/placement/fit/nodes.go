package fit

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// amount of a resource, by its number.
type amount struct {
	resource int
	value    int64
}

// resources numbers the names of resources.
type resources struct {
	numbers map[corev1.ResourceName]int
	names   []corev1.ResourceName
}

func (r *resources) number(name corev1.ResourceName) int {
	n, known := r.numbers[name]
	if !known {
		n = len(r.names)
		r.numbers[name], r.names = n, append(r.names, name)
	}
	return n
}

// amounts returns what a list has of each resource, in the units that the scheduler counts in.
func (r *resources) amounts(list corev1.ResourceList) []amount {
	all := make([]amount, 0, len(list))
	for name, quantity := range list {
		value := quantity.Value()
		if name == corev1.ResourceCPU {
			value = quantity.MilliValue()
		}
		if value > 0 {
			all = append(all, amount{r.number(name), value})
		}
	}
	slices.SortFunc(all, func(a, b amount) int { return a.resource - b.resource })
	return all
}

// requests returns what a pod takes of a node, the pod itself included.
func (r *resources) requests(pod *corev1.Pod) []amount {
	list := resource.PodRequests(pod, resource.PodResourcesOptions{UseStatusResources: true})
	return append(r.amounts(list), amount{r.number(corev1.ResourcePods), 1})
}

// cached makes values once for each key.
type cached[T any] map[string]T

func (c cached[T]) get(key string, build func() T) T {
	value, known := c[key]
	if !known {
		value = build()
		c[key] = value
	}
	return value
}

// nodeTerms evaluates the terms that do not depend on other pods, once for all pods that have
// the same.
type nodeTerms struct {
	nodes      []corev1.Node
	tolerating cached[[]Reason]
	selecting  cached[[]Reason]
	both       cached[[]Reason]
	volumes    cached[[]Reason]
}

func newNodeTerms(nodes []corev1.Node) *nodeTerms {
	return &nodeTerms{nodes, cached[[]Reason]{}, cached[[]Reason]{}, cached[[]Reason]{}, cached[[]Reason]{}}
}

// on returns what a function returns for each node.
func (t *nodeTerms) on(reason func(*corev1.Node) Reason) []Reason {
	all := make([]Reason, len(t.nodes))
	for i := range t.nodes {
		all[i] = reason(&t.nodes[i])
	}
	return all
}

// taintsKey and selectorKey are equal for pods that the same nodes refuse.
func taintsKey(pod *corev1.Pod) string {
	var key strings.Builder
	for i := range pod.Spec.Tolerations {
		key.WriteString(pod.Spec.Tolerations[i].String())
	}
	return key.String()
}

func selectorKey(pod *corev1.Pod) string {
	var key strings.Builder
	for _, label := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
		key.WriteString(label + "=" + pod.Spec.NodeSelector[label] + ",")
	}
	if a := requiredNodes(pod); a != nil {
		key.WriteString(a.String())
	}
	return key.String()
}

func requiredNodes(pod *corev1.Pod) *corev1.NodeSelector {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

// taints returns why each node's taints refuse a pod.
func (t *nodeTerms) taints(pod *corev1.Pod) []Reason {
	return t.tolerating.get(taintsKey(pod), func() []Reason {
		return t.on(func(node *corev1.Node) Reason {
			cordon := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
			if node.Spec.Unschedulable && !schedulinghelper.TolerationsTolerateTaint(klog.Logger{}, pod.Spec.Tolerations, &cordon, false) {
				return ReasonUnschedulable
			}
			if _, is := untolerated(pod, node); is {
				return ReasonTaint
			}
			return ""
		})
	})
}

func untolerated(pod *corev1.Pod, node *corev1.Node) (corev1.Taint, bool) {
	return schedulinghelper.FindMatchingUntoleratedTaint(klog.Logger{}, node.Spec.Taints, pod.Spec.Tolerations, func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	}, false)
}

// selectors returns why each node's labels refuse a pod.
func (t *nodeTerms) selectors(pod *corev1.Pod) []Reason {
	return t.selecting.get(selectorKey(pod), func() []Reason {
		required := nodeaffinity.GetRequiredNodeAffinity(pod)
		return t.on(func(node *corev1.Node) Reason {
			if match, err := required.Match(node); err != nil || !match {
				return ReasonNodeAffinity
			}
			return ""
		})
	})
}

// labelsAndTaints returns why each node refuses a pod, in the scheduler's order.
func (t *nodeTerms) labelsAndTaints(pod *corev1.Pod) []Reason {
	return t.both.get(taintsKey(pod)+"\n"+selectorKey(pod), func() []Reason {
		all := slices.Clone(t.taints(pod))
		for i, reason := range t.selectors(pod) {
			if all[i] == "" {
				all[i] = reason
			}
		}
		return all
	})
}

// volume returns why each node cannot use a volume. Nil: all can.
func (t *nodeTerms) volume(volume *corev1.PersistentVolume) []Reason {
	if volume.Spec.NodeAffinity == nil || volume.Spec.NodeAffinity.Required == nil {
		return nil
	}
	return t.volumes.get(volume.Spec.NodeAffinity.Required.String(), func() []Reason {
		return t.on(func(node *corev1.Node) Reason {
			if match, err := schedulinghelper.MatchNodeSelectorTerms(node, volume.Spec.NodeAffinity.Required); err != nil || !match {
				return ReasonVolume
			}
			return ""
		})
	})
}
