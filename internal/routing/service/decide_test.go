package service

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing/pods"
)

// randomView has members with 0 to 2 pods in any state that may be met.
func randomView(r *rand.Rand) *view {
	v := &view{service: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, profile: "web"}
	marks := []pods.Mark{
		{Serving: v1alpha1.ServingActive},
		{Serving: v1alpha1.ServingStandby, Profile: "web"},
		{Serving: v1alpha1.ServingStandby, Profile: "older"},
		{Serving: v1alpha1.ServingStandby},
		{Serving: v1alpha1.ServingActive, Profile: "web"},
		{Profile: "web"},
	}
	for i := range 1 + r.IntN(8) {
		m := member{name: fmt.Sprintf("vm-%d", i)}
		for range r.IntN(3) {
			p := pod{Pod: &corev1.Pod{}, mark: marks[r.IntN(len(marks))], ready: r.IntN(4) > 0}
			p.endpoint = p.ready && r.IntN(3) > 0
			m.pods = append(m.pods, p)
		}
		v.members = append(v.members, m)
	}
	return v
}

// Whatever is taken out of the Service: enough ready members stay that serve
// already.
func TestDecideNeverUndercutsMinActive(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	broke := 0
	for range 20000 {
		v := randomView(r)
		minActive := r.IntN(5)
		shares := map[string]float64{"unknown": 1}
		for _, m := range v.members {
			if r.IntN(2) == 0 {
				shares[m.name] = r.Float64()
			}
		}
		d := v.decide(shares, minActive)
		taken := map[*pod]bool{}
		for _, p := range d.standby {
			taken[p] = true
		}
		ready, serving := 0, 0
		for i := range v.members {
			m := &v.members[i]
			if m.ready() {
				ready++
			}
			for j := range m.pods {
				if p := &m.pods[j]; p.ready && p.endpoint && !taken[p] {
					serving++
					break
				}
			}
		}
		if len(d.standby) == 0 {
			continue
		}
		broke++
		if want := min(max(minActive, 1), ready); serving < want {
			t.Fatalf("%d of %d ready members stay, want %d: shares %v, %+v", serving, ready, want, shares, v.members)
		}
	}
	if broke < 100 {
		t.Errorf("only %d of the views had something to put on standby: the test tests nothing", broke)
	}
}

// Done as decided, and with endpoints that follow, nothing is left to do.
func TestDecideComesToAnEnd(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		v := randomView(r)
		shares := map[string]float64{"vm-0": 0.5, "vm-3": 0.5}
		for round := 0; ; round++ {
			d := v.decide(shares, 2)
			for _, p := range d.activate {
				p.mark = v.active(p)
			}
			for _, p := range d.standby {
				p.mark = v.standby(p)
			}
			for i := range v.members {
				for j := range v.members[i].pods {
					p := &v.members[i].pods[j]
					p.endpoint = p.ready && p.mark.Serving == v1alpha1.ServingActive
				}
			}
			if len(d.activate)+len(d.standby) == 0 && d.waits == "" {
				if state := v.state(); !state.Settled || v.reverted() != nil {
					t.Fatalf("nothing to do, but %+v, reverted %v", state, v.reverted())
				}
				break
			}
			if round == 3 {
				t.Fatalf("not done after %d rounds: %+v", round, d)
			}
		}
	}
}
