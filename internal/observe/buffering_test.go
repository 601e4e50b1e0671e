package observe

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// randomBuffering holds packets somehow.
func randomBuffering(random *rand.Rand) model.Buffering {
	windows := []time.Duration{0, 125 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond, time.Millisecond}
	out := model.Buffering{
		Window: windows[1+random.IntN(4)], FloodWindow: windows[random.IntN(4)],
		OnPackets: units.PacketsPerSecond(1 + random.IntN(1e7)),
	}
	for port := range random.IntN(model.MaxServices) {
		out.Services = append(out.Services, model.Service{UDP: random.IntN(2) == 0, Port: uint16(1 + port*9000)})
	}
	return out
}

func TestWithoutBuffering(t *testing.T) {
	for name, tc := range map[string]struct {
		has  []v1alpha1.Capability
		want string
	}{
		"an older agent": {[]v1alpha1.Capability{{Name: "SchedSlice", Available: true}}, "the node's agent is older than the lever: update it"},
		"able":           {[]v1alpha1.Capability{{Name: "SchedSlice"}, {Name: "Buffering", Available: true, Message: "by tcx"}}, ""},
		"unable":         {[]v1alpha1.Capability{{Name: "Buffering", Message: "the kernel has no fq"}}, "the kernel has no fq"},
		"without a word": {[]v1alpha1.Capability{{Name: "Buffering"}}, "the node's agent says that it can hold no packets"},
	} {
		report := &v1alpha1.NodeReport{Status: v1alpha1.NodeReportStatus{Capabilities: tc.has}}
		if got := WithoutBuffering(report); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// What no agent would do is not planned with, and not written.
func TestBufferingLeavesOut(t *testing.T) {
	good := v1alpha1.BufferingAction{WindowMicroseconds: ptr.To[int32](250), FloodWindowMicroseconds: ptr.To[int32](500), OnPacketsPerSecond: 9000}
	for name, change := range map[string]func(*v1alpha1.BufferingAction){
		"a window of the future":  func(b *v1alpha1.BufferingAction) { b.WindowMicroseconds = ptr.To[int32](2000) },
		"a window off the grid":   func(b *v1alpha1.BufferingAction) { b.WindowMicroseconds = ptr.To[int32](300) },
		"a negative window":       func(b *v1alpha1.BufferingAction) { b.WindowMicroseconds = ptr.To[int32](-125) },
		"a long window in floods": func(b *v1alpha1.BufferingAction) { b.FloodWindowMicroseconds = ptr.To[int32](1000) },
		"no rate":                 func(b *v1alpha1.BufferingAction) { b.OnPacketsPerSecond = 0 },
		"no window": func(b *v1alpha1.BufferingAction) {
			b.WindowMicroseconds, b.FloodWindowMicroseconds = nil, ptr.To[int32](0)
		},
		"too many services": func(b *v1alpha1.BufferingAction) {
			for port := range int32(9) {
				b.SmallPacketServices = append(b.SmallPacketServices, v1alpha1.ServicePort{Port: 1 + port})
			}
		},
	} {
		action := *good.DeepCopy()
		change(&action)
		if got := buffering(&action); !got.Equal(model.Buffering{}) {
			t.Errorf("%s: read as %+v", name, got)
		}
	}
	if got := buffering(&good); got.Window != 250*time.Microsecond || got.FloodWindow != 500*time.Microsecond || got.OnPackets != 9000 {
		t.Errorf("a good one is read as %+v", got)
	}
	for name, b := range map[string]model.Buffering{
		"nothing":         {OnPackets: 9000},
		"half a window":   {Window: 60 * time.Microsecond, OnPackets: 9000},
		"without a rate":  {Window: 250 * time.Microsecond},
		"a rate too high": {Window: 250 * time.Microsecond, OnPackets: 1e10},
	} {
		if got := bufferingAction(b); got != nil {
			t.Errorf("%s: written as %+v", name, got)
		}
	}
}

// The same services in another order, or twice, are the same plan.
func TestServicesAreOneList(t *testing.T) {
	one := services([]v1alpha1.ServicePort{{Protocol: "UDP", Port: 53}, {Protocol: "TCP", Port: 53}, {Port: 123}})
	other := services([]v1alpha1.ServicePort{{Protocol: "UDP", Port: 123}, {Port: 123}, {Protocol: "TCP", Port: 53}, {Port: 0}, {Port: 53}})
	if diff := cmp.Diff(one, other); diff != "" || len(one) != 3 {
		t.Errorf("%d services (-one +other):\n%s", len(one), diff)
	}
}

// A group's member that carries little counts as held while others are: or it would seem
// to cost something else than if it carried more.
func TestGroupsWindow(t *testing.T) {
	member := func(window int, share float64) *model.VMRates {
		return &model.VMRates{Buffering: &model.BufferingRates{WindowMicroseconds: window, ActiveShare: share}}
	}
	plain, idle, busy := &model.VMRates{}, member(500, 0.1), member(250, 0.9)
	if anyHeld([]*model.VMRates{plain, nil, idle}) || windowOf(idle, false) != 0 {
		t.Error("held where nobody's packets are")
	}
	if !anyHeld([]*model.VMRates{idle, nil, busy}) || windowOf(idle, true) != 500*time.Microsecond ||
		windowOf(busy, true) != 250*time.Microsecond || windowOf(plain, true) != 0 || windowOf(nil, true) != 0 {
		t.Error("members' windows while some are held")
	}
}
