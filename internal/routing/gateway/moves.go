package gateway

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing/pods"
)

// folded tells whether members share Services.
func (v *view) folded() bool {
	most := maxBackends
	for name := range v.backends() {
		if _, is := v.folds[name]; is {
			most = leaveFolds
		}
	}
	return len(v.members) > most
}

// foldOf returns the fold that a member is in, by its first pod that is in one.
func (v *view) foldOf(m *member) int {
	for _, pod := range m.pods {
		if fold, is := v.folds[pod.Labels[v1alpha1.LabelFold]]; is {
			return fold
		}
	}
	return noFold
}

// service returns the name of the Service by which a member is to be reached.
// Empty: none yet.
func (v *view) service(m *member, folded bool) string {
	if !folded {
		return memberService(v.group, m.name)
	}
	if fold := v.foldOf(m); fold != noFold {
		return foldService(v.group, fold)
	}
	return ""
}

// moves returns the members that are to change their fold and may do so now,
// with the Service of the new one. A fold with a weight keeps a member that can
// be reached, and minActive members keep their traffic; those that have to stay
// for it get the mean share of their fold.
func (v *view) moves(shares map[string]float64, settled bool) map[string]string {
	members := make([]foldMember, len(v.members))
	for i := range v.members {
		m := &v.members[i]
		fold := v.foldOf(m)
		members[i] = foldMember{name: m.name, share: shares[m.name], fold: fold, stays: fold != noFold && !m.ready}
	}
	goal := assign(members)
	left, serving, ready := v.serving()
	floor := min(max(int(v.group.Target.MinActive), 1), ready)
	weights := v.backends()
	out := map[string]string{}
	for i := range v.members {
		m := &v.members[i]
		from, to := v.service(m, true), foldService(v.group, goal[m.name])
		if from == to || len(m.pods) == 0 {
			continue
		}
		// A weight that was taken away may not be away everywhere.
		_, named := weights[from]
		if inForce := weights[from] > 0 || named && !settled; inForce && v.reachable(m, from) > 0 {
			loses := 1
			if settled && weights[to] > 0 {
				loses = 0
			}
			if left[from] < 2 || serving-loses < floor {
				continue
			}
			left[from]--
			serving -= loses
		}
		out[m.name] = to
	}
	return out
}

// lingers tells whether a member is still an endpoint of a fold that it left.
func (v *view) lingers() bool {
	for i := range v.members {
		m := &v.members[i]
		for name := range v.folds {
			if name != v.service(m, true) && v.reachable(m, name) > 0 {
				return true
			}
		}
	}
	return false
}

// serving counts the members that can be reached by each Service, those that get
// traffic by any, and those that are ready.
func (v *view) serving() (byService map[string]int, serving, ready int) {
	byService = map[string]int{}
	for i := range v.members {
		m := &v.members[i]
		if m.ready {
			ready++
		}
		serves := false
		for name, weight := range v.backends() {
			// A pod that left a fold is its endpoint until the endpoints follow.
			if _, fold := v.folds[name]; fold && name != v.service(m, true) {
				continue
			}
			if v.reachable(m, name) > 0 {
				byService[name]++
				serves = serves || weight > 0
			}
		}
		if serves {
			serving++
		}
	}
	return byService, serving, ready
}

// mark sets the label of all pods of members that move, and of those that were
// born since. It tells whether anything was written.
func (w *Writer) mark(ctx context.Context, v *view, moves map[string]string) (bool, error) {
	written := false
	for i := range v.members {
		m := &v.members[i]
		fold := moves[m.name]
		if fold == "" {
			fold = v.service(m, true)
		}
		if fold == "" {
			continue
		}
		for _, pod := range m.pods {
			mark := v.released(pod)
			mark.Fold, mark.Profile = fold, v.group.Profile.Name
			changed, err := w.set(ctx, v, pod, mark)
			if err != nil {
				return written, err
			}
			written = written || changed
		}
	}
	return written, nil
}

// released returns a pod's mark without what is this profile's.
func (v *view) released(pod *corev1.Pod) pods.Mark {
	mark := pods.MarkOf(pod)
	if mark.Profile == "" {
		return mark
	}
	return pods.Released(mark)
}

// unmark takes the labels of folds off, of pods that are in none any more.
func (w *Writer) unmark(ctx context.Context, v *view, folded bool) error {
	for _, pod := range v.others {
		if pods.MarkOf(pod).Profile == v.group.Profile.Name {
			if _, err := w.set(ctx, v, pod, v.released(pod)); err != nil {
				return err
			}
		}
	}
	if folded {
		return nil
	}
	for i := range v.members {
		for _, pod := range v.members[i].pods {
			if _, err := w.set(ctx, v, pod, v.released(pod)); err != nil {
				return err
			}
		}
	}
	return nil
}

// set leaves a pod that changed meanwhile to the next call. It tells whether
// there was something to write.
func (w *Writer) set(ctx context.Context, v *view, pod *corev1.Pod, mark pods.Mark) (bool, error) {
	if pods.MarkOf(pod) == mark {
		return false, nil
	}
	err := pods.Set(ctx, w.cached, pod, mark)
	if errors.Is(err, pods.ErrChanged) {
		return true, nil
	}
	v.wrote = v.wrote || err == nil
	return true, err
}
