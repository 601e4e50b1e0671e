package fit

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// spread is how pods that a constraint selects are to be spread: over the values of a topology
// key on nodes that count.
type spread struct {
	topology int
	// counts says which nodes count.
	counts  []bool
	domains int
}

// spreadTerm is a constraint of a VM's pod.
type spreadTerm struct {
	// spread is its number.
	spread              int32
	maxSkew, minDomains int
	// self is 1 if the pod counts itself.
	self int
}

// spreadState counts the pods of a spread.
type spreadState struct {
	// pods by the number of the topology's value, and how many values have each number of pods.
	pods, values []int32
	least        int
}

func newSpreadState(s *spread, values int) spreadState {
	return spreadState{pods: make([]int32, values), values: []int32{int32(s.domains)}}
}

func (s *spreadState) clone() spreadState {
	return spreadState{slices.Clone(s.pods), slices.Clone(s.values), s.least}
}

// add counts a pod in, or out when by is -1.
func (s *spreadState) add(value, by int32) {
	before := s.pods[value]
	after := before + by
	s.pods[value] = after
	if int(after) == len(s.values) {
		s.values = append(s.values, 0)
	}
	s.values[before]--
	s.values[after]++
	switch {
	case int(after) < s.least:
		s.least = int(after)
	case int(before) == s.least && s.values[before] == 0:
		s.least = int(after)
	}
}

// allows returns whether one more pod may come to a topology's value.
func (s *spreadState) allows(t *spreadTerm, value int32, domains int) bool {
	least := s.least
	if domains < t.minDomains {
		least = 0
	}
	return int(s.pods[value])+t.self-least <= t.maxSkew
}

// newSpreads returns the constraints of a VM's pod, or the term that is malformed.
func (b *builder) newSpreads(pod *corev1.Pod) (terms []spreadTerm, malformed string) {
	constraints := spreads(pod)
	for i := range constraints {
		c := &constraints[i]
		pods, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
		if err != nil {
			return nil, "topologySpreadConstraints.labelSelector: " + err.Error()
		}
		selected := newSelector([]string{pod.Namespace}, pods)
		key := selected.key + "\n" + c.TopologyKey
		for _, other := range constraints {
			key += "\n" + other.TopologyKey
		}
		byLabels := ptr.Deref(c.NodeAffinityPolicy, corev1.NodeInclusionPolicyHonor) == corev1.NodeInclusionPolicyHonor
		byTaints := ptr.Deref(c.NodeTaintsPolicy, corev1.NodeInclusionPolicyIgnore) == corev1.NodeInclusionPolicyHonor
		if byLabels {
			key += "\n" + selectorKey(pod)
		}
		if byTaints {
			key += "\n" + taintsKey(pod)
		}
		key += "\n" + strconv.FormatBool(byLabels) + strconv.FormatBool(byTaints)
		number, known := b.spreadNumbers[key]
		if !known {
			number = int32(len(b.spreads))
			b.spreadNumbers[key] = number
			b.spreads = append(b.spreads, b.newSpread(pod, constraints, i, byLabels, byTaints))
			// The scheduler counts no pod where a constraint selects all.
			if !pods.Empty() {
				b.rules = append(b.rules, rule{selectors: []selector{selected}, spread: number})
			}
		}
		term := spreadTerm{spread: number, maxSkew: int(c.MaxSkew), minDomains: int(ptr.Deref(c.MinDomains, 1))}
		if selected.matches(pod.Namespace, pod.Labels) {
			term.self = 1
		}
		terms = append(terms, term)
	}
	return terms, ""
}

func (b *builder) newSpread(pod *corev1.Pod, constraints []corev1.TopologySpreadConstraint, i int, byLabels, byTaints bool) spread {
	s := spread{topology: b.topology(constraints[i].TopologyKey), counts: make([]bool, len(b.nodes))}
	seen, labelled := map[int32]bool{}, b.terms.selectors(pod)
	for n := range b.nodes {
		s.counts[n] = (!byLabels || labelled[n] == "") && (!byTaints || b.tolerates(pod, n)) &&
			!slices.ContainsFunc(constraints, func(c corev1.TopologySpreadConstraint) bool {
				_, has := b.nodes[n].Labels[c.TopologyKey]
				return !has
			})
		if s.counts[n] {
			seen[b.topologies[s.topology].of[n]] = true
		}
	}
	s.domains = len(seen)
	return s
}

// tolerates returns whether a pod tolerates a node's taints, whether it is cordoned or not.
func (b *builder) tolerates(pod *corev1.Pod, node int) bool {
	_, refuses := untolerated(pod, &b.nodes[node])
	return !refuses
}
