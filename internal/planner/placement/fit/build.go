package fit

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// builder makes a Fit.
type builder struct {
	*Fit
	terms      *nodeTerms
	namespaces selectors
	numbers    map[string]int32 // of nodes, by name
	claims     map[types.NamespacedName]*corev1.PersistentVolumeClaim
	volumes    map[string]*corev1.PersistentVolume
	// rules, by what they select, and spreads, by what they count.
	rules         []rule
	ruleNumbers   map[string]int32
	spreadNumbers map[string]int32
	topologyIDs   map[string]int
}

// New returns what is known of VMs and nodes, with each VM on the node of its pod. VMs and nodes
// are numbered in the order given, which is that of a placement.Problem.
func New(c Cluster, nodes []string, vms []VM) *Fit {
	b := &builder{
		Fit: &Fit{
			facts:  &facts{nodes: c.Nodes, resources: resources{numbers: map[corev1.ResourceName]int{}}},
			counts: map[cell]int32{},
		},
		terms: newNodeTerms(c.Nodes), namespaces: selectors{}, numbers: map[string]int32{},
		claims: map[types.NamespacedName]*corev1.PersistentVolumeClaim{}, volumes: map[string]*corev1.PersistentVolume{},
		ruleNumbers: map[string]int32{}, spreadNumbers: map[string]int32{}, topologyIDs: map[string]int{},
	}
	// Number 0 means none.
	b.counted, b.spreads = []int{0}, []spread{{}}
	b.index(c)
	for _, name := range nodes {
		b.places = append(b.places, b.number(name))
	}
	others := b.others(c.Pods, vms)
	for _, pod := range others {
		b.owns(pod)
	}
	b.vms = make([]vm, len(vms))
	for i := range vms {
		b.describeVM(&b.vms[i], vms[i])
	}
	b.measureNodes()
	b.countPods(others)
	return b.Fit
}

func (b *builder) index(c Cluster) {
	for i := range c.Nodes {
		b.numbers[c.Nodes[i].Name] = int32(i)
	}
	for i := range c.Namespaces {
		b.namespaces[c.Namespaces[i].Name] = c.Namespaces[i].Labels
	}
	for i := range c.Claims {
		b.claims[key(c.Claims[i].Namespace, c.Claims[i].Name)] = &c.Claims[i]
	}
	for i := range c.Volumes {
		b.volumes[c.Volumes[i].Name] = &c.Volumes[i]
	}
}

func (b *builder) number(node string) int32 {
	if n, known := b.numbers[node]; known {
		return n
	}
	return none
}

// others returns the pods that take room on nodes and are no VM's.
func (b *builder) others(pods []corev1.Pod, vms []VM) []*corev1.Pod {
	own := map[types.NamespacedName]bool{}
	for _, vm := range vms {
		own[key(vm.Pod.Namespace, vm.Pod.Name)] = true
	}
	var others []*corev1.Pod
	for i := range pods {
		pod := &pods[i]
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if !ended && b.number(pod.Spec.NodeName) != none && !own[key(pod.Namespace, pod.Name)] {
			others = append(others, pod)
		}
	}
	return others
}

// describeVM makes what does not depend on other pods, and the rules of the VM's terms.
func (b *builder) describeVM(v *vm, of VM) {
	v.home = b.number(of.Pod.Spec.NodeName)
	var source *corev1.Node
	if v.home != none {
		source = &b.nodes[v.home]
	}
	v.pod = Target(of, source)
	v.requests = b.resources.requests(v.pod)
	v.nodes = b.terms.labelsAndTaints(v.pod)
	term := notEvaluated(of)
	if term == "" && v.home == none && of.Pod.Spec.NodeName != "" {
		term = "nodeName " + of.Pod.Spec.NodeName + ", which is unknown"
	}
	for _, add := range []func(*vm) string{b.addVolumes, b.addTermsOfPods, b.addSpreads} {
		if malformed := add(v); term == "" {
			term = malformed
		}
	}
	if term != "" {
		v.refused = Refusal{ReasonNotEvaluated, term}
	}
}

// addVolumes adds what the volumes of a VM's claims say of nodes. It returns a term that is not
// evaluated.
func (b *builder) addVolumes(v *vm) string {
	for i := range v.pod.Spec.Volumes {
		source := v.pod.Spec.Volumes[i].PersistentVolumeClaim
		if source == nil {
			continue
		}
		claim := b.claims[key(v.pod.Namespace, source.ClaimName)]
		if claim == nil || claim.Spec.VolumeName == "" || b.volumes[claim.Spec.VolumeName] == nil {
			return "PersistentVolumeClaim " + source.ClaimName + ", which is not bound"
		}
		if !slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteMany) && !slices.Contains(claim.Spec.AccessModes, corev1.ReadOnlyMany) {
			return "PersistentVolumeClaim " + source.ClaimName + ", which one node has at a time"
		}
		volume := b.volumes[claim.Spec.VolumeName]
		for _, zone := range []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion} {
			if _, labelled := volume.Labels[zone]; labelled {
				return "label " + zone + " of PersistentVolume " + volume.Name
			}
		}
		if reasons := b.terms.volume(volume); reasons != nil {
			v.volumes = append(v.volumes, reasons)
		}
	}
	return ""
}

// addTermsOfPods adds a VM's pod affinity and anti-affinity, and what it asks of others as one
// that runs.
func (b *builder) addTermsOfPods(v *vm) string {
	var together []selector
	terms := affinity(v.pod)
	for i := range terms {
		s, err := b.namespaces.ofTerm(v.pod, &terms[i])
		if err != nil {
			return "podAffinity.labelSelector: " + err.Error()
		}
		together = append(together, s)
	}
	if len(terms) > 0 {
		v.self = !slices.ContainsFunc(together, func(s selector) bool { return !s.matches(v.pod.Namespace, v.pod.Labels) })
		number := b.rule(together, "")
		for i := range terms {
			v.affinity = append(v.affinity, b.counter(number, terms[i].TopologyKey))
		}
	}
	apart := antiAffinity(v.pod)
	for i := range apart {
		s, err := b.namespaces.ofTerm(v.pod, &apart[i])
		if err != nil {
			return "podAntiAffinity.labelSelector: " + err.Error()
		}
		number := b.rule([]selector{s}, apart[i].TopologyKey)
		v.apart = append(v.apart, b.counter(number, apart[i].TopologyKey))
	}
	v.counters = b.owns(v.pod)
	return ""
}

func (b *builder) addSpreads(v *vm) (malformed string) {
	v.spreads, malformed = b.newSpreads(v.pod)
	return malformed
}

// owns returns the counters of the pods that have a pod's anti-affinity.
func (b *builder) owns(pod *corev1.Pod) []int32 {
	var counters []int32
	terms := antiAffinity(pod)
	for i := range terms {
		s, err := b.namespaces.ofTerm(pod, &terms[i])
		if err != nil {
			continue // the scheduler ignores it, too
		}
		r := &b.rules[b.rule([]selector{s}, terms[i].TopologyKey)]
		if r.owners == 0 {
			r.owners = b.newCounter(terms[i].TopologyKey)
		}
		counters = append(counters, r.owners)
	}
	return counters
}

// rule returns the number of the rule for selectors. A topology key tells those of
// anti-affinity apart, which have owners.
func (b *builder) rule(selectors []selector, topologyKey string) int32 {
	id := topologyKey
	for _, s := range selectors {
		id += "\n" + s.key
	}
	number, known := b.ruleNumbers[id]
	if !known {
		number = int32(len(b.rules))
		b.ruleNumbers[id] = number
		b.rules = append(b.rules, rule{selectors: selectors})
	}
	return number
}

// counter returns the counter of a rule's pods by a topology key.
func (b *builder) counter(number int32, topologyKey string) int32 {
	r, id := &b.rules[number], b.topology(topologyKey)
	for _, c := range r.counters {
		if b.counted[c] == id {
			return c
		}
	}
	c := b.newCounter(topologyKey)
	r.counters = append(r.counters, c)
	return c
}

func (b *builder) newCounter(topologyKey string) int32 {
	b.counted = append(b.counted, b.topology(topologyKey))
	return int32(len(b.counted) - 1)
}

// topology returns the number of a topology key.
func (b *builder) topology(topologyKey string) int {
	id, known := b.topologyIDs[topologyKey]
	if known {
		return id
	}
	t, values := topology{key: topologyKey, of: make([]int32, len(b.nodes))}, map[string]int32{}
	for n := range b.nodes {
		value, labelled := b.nodes[n].Labels[topologyKey]
		if t.of[n] = none; !labelled {
			continue
		}
		if _, known := values[value]; !known {
			values[value] = int32(len(values))
		}
		t.of[n] = values[value]
	}
	id = len(b.topologies)
	b.topologyIDs[topologyKey], b.topologies = id, append(b.topologies, t)
	return id
}

// measureNodes makes room for the resources of all pods.
func (b *builder) measureNodes() {
	amounts := make([][]amount, len(b.nodes))
	for n := range b.nodes {
		amounts[n] = b.resources.amounts(b.nodes[n].Status.Allocatable)
	}
	b.allocatable, b.used = make([][]int64, len(b.nodes)), make([][]int64, len(b.nodes))
	for n := range b.nodes {
		b.allocatable[n], b.used[n] = make([]int64, len(b.resources.names)), make([]int64, len(b.resources.names))
		for _, a := range amounts[n] {
			b.allocatable[n][a.resource] = a.value
		}
	}
}

// countPods counts all pods where they run.
func (b *builder) countPods(others []*corev1.Pod) {
	b.spread = make([]spreadState, len(b.spreads))
	for i := range b.spreads {
		if i > 0 {
			b.spread[i] = newSpreadState(&b.spreads[i], len(b.nodes))
		}
	}
	found := newIndex(b.rules, b.frequency(others))
	for _, pod := range others {
		node := b.numbers[pod.Spec.NodeName]
		for _, a := range b.resources.requests(pod) {
			// Resources that no VM asks for and no node has are not counted.
			if a.resource < len(b.used[node]) {
				b.used[node][a.resource] += a.value
			}
		}
		counters, counting := b.owns(pod), []int32(nil)
		found.find(b.rules, pod, func(number int32) {
			r := &b.rules[number]
			counters = append(counters, r.counters...)
			if r.spread != 0 && pod.DeletionTimestamp == nil {
				counting = append(counting, r.spread)
			}
		})
		b.tally(counters, counting, node, 1)
	}
	b.at = make([]int32, len(b.vms))
	for i := range b.vms {
		v := &b.vms[i]
		found.find(b.rules, v.pod, func(number int32) {
			r := &b.rules[number]
			v.counters = append(v.counters, r.counters...)
			if r.owners != 0 {
				v.others = append(v.others, r.owners)
			}
			if r.spread != 0 {
				v.counting = append(v.counting, r.spread)
			}
		})
		b.at[i] = v.home
		b.add(i, v.home, 1)
	}
}

// frequency returns how many pods have each label that a rule asks for.
func (b *builder) frequency(others []*corev1.Pod) map[label]int {
	frequency := map[label]int{}
	for i := range b.rules {
		for _, s := range b.rules[i].selectors {
			requirements, _ := s.labels.Requirements()
			for _, r := range requirements {
				for _, pair := range pairsOf(r) {
					frequency[pair] = 0
				}
			}
		}
	}
	pods := slices.Clone(others)
	for i := range b.vms {
		pods = append(pods, b.vms[i].pod)
	}
	for _, pod := range pods {
		for key, value := range pod.Labels {
			if n, asked := frequency[label{key, value}]; asked {
				frequency[label{key, value}] = n + 1
			}
		}
	}
	return frequency
}
