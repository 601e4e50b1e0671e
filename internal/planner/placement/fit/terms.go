package fit

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// selector selects pods.
type selector struct {
	// namespaces of the pods. Nil: all.
	namespaces map[string]bool
	labels     labels.Selector
	// key is the same for equal selectors.
	key string
}

func (s *selector) matches(namespace string, of labels.Set) bool {
	return (s.namespaces == nil || s.namespaces[namespace]) && s.labels.Matches(of)
}

// selectors makes selectors of pods, with the labels of all namespaces.
type selectors map[string]labels.Set

// ofTerm returns what a pod's term selects.
func (n selectors) ofTerm(pod *corev1.Pod, term *corev1.PodAffinityTerm) (selector, error) {
	pods, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
	if err != nil {
		return selector{}, err
	}
	namespaces, err := metav1.LabelSelectorAsSelector(term.NamespaceSelector)
	if err != nil {
		return selector{}, err
	}
	if namespaces.Empty() {
		return newSelector(nil, pods), nil
	}
	names := slices.Clone(term.Namespaces)
	if len(names) == 0 && term.NamespaceSelector == nil {
		names = []string{pod.Namespace}
	}
	if term.NamespaceSelector != nil {
		for name, of := range n {
			if namespaces.Matches(of) {
				names = append(names, name)
			}
		}
	}
	return newSelector(names, pods), nil
}

// newSelector returns a selector in namespaces. Nil: in all.
func newSelector(namespaces []string, pods labels.Selector) selector {
	s := selector{labels: pods, key: "*\n" + pods.String()}
	if requirements, selectable := pods.Requirements(); !selectable && len(requirements) == 0 {
		s.key = "none\n"
	}
	if namespaces != nil {
		slices.Sort(namespaces)
		s.namespaces, s.key = map[string]bool{}, strings.Join(namespaces, ",")+s.key[strings.Index(s.key, "\n"):]
		for _, name := range namespaces {
			s.namespaces[name] = true
		}
	}
	return s
}

// rule says what is counted of the pods that all of its selectors select.
type rule struct {
	selectors []selector
	// counters of these pods by the value of a topology key.
	counters []int32
	// owners is the counter of the pods that refuse to be with these pods. 0: none does.
	owners int32
	// spread is the number of the spread that counts these pods. 0: none does.
	spread int32
}

// index finds the rules for a pod without a look at each rule.
type index struct {
	byLabel map[label][]int32
	// always are rules that no label must have a given value for.
	always []int32
}

type label struct{ key, value string }

// newIndex returns an index of rules for pods in which labels are that frequent.
func newIndex(rules []rule, frequency map[label]int) index {
	x := index{byLabel: map[label][]int32{}}
	for i := range rules {
		var best []label
		rarest, selectable := 0, true
		for _, s := range rules[i].selectors {
			requirements, can := s.labels.Requirements()
			selectable = selectable && can
			for _, r := range requirements {
				if pairs := pairsOf(r); pairs != nil {
					pods := 0
					for _, pair := range pairs {
						pods += frequency[pair]
					}
					if best == nil || pods < rarest {
						best, rarest = pairs, pods
					}
				}
			}
		}
		switch {
		case !selectable:
		case best == nil:
			x.always = append(x.always, int32(i))
		default:
			for _, pair := range best {
				x.byLabel[pair] = append(x.byLabel[pair], int32(i))
			}
		}
	}
	return x
}

// pairsOf returns the labels of which a pod must have one to meet a requirement. Nil: there are
// none.
func pairsOf(r labels.Requirement) []label {
	switch r.Operator() {
	case selection.In, selection.Equals, selection.DoubleEquals:
	default:
		return nil
	}
	var pairs []label
	for value := range r.Values() {
		pairs = append(pairs, label{r.Key(), value})
	}
	return pairs
}

// find calls back with the number of each rule whose selectors all select a pod.
func (x *index) find(rules []rule, pod *corev1.Pod, found func(int32)) {
	check := func(numbers []int32) {
		for _, number := range numbers {
			if r := &rules[number]; !slices.ContainsFunc(r.selectors, func(s selector) bool {
				return !s.matches(pod.Namespace, pod.Labels)
			}) {
				found(number)
			}
		}
	}
	check(x.always)
	if len(x.byLabel) == 0 {
		return
	}
	for key, value := range pod.Labels {
		check(x.byLabel[label{key, value}])
	}
}
