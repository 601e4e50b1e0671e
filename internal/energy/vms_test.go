package energy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

func TestLauncherOfPod(t *testing.T) {
	long := strings.Repeat("x", 63)
	tests := map[string]struct {
		uid, namespace, pod string
		want                Launcher
		none                bool
	}{
		"by UID":             {uid: "1", namespace: "shop", pod: "virt-launcher-web-abcde", want: Launcher{UID: "1"}},
		"by name":            {namespace: "shop", pod: "virt-launcher-web-abcde", want: Launcher{Namespace: "shop", Base: "virt-launcher-web-"}},
		"no launcher":        {uid: "1", namespace: "shop", pod: "web-abcde", none: true},
		"nothing more":       {uid: "1", namespace: "shop", pod: "virt-launcher-abcde", none: true},
		"short":              {uid: "1", namespace: "shop", pod: "vir", none: true},
		"without a space":    {pod: "virt-launcher-web-abcde", none: true},
		"a name that is cut": {namespace: "shop", pod: ("virt-launcher-" + long)[:58] + "abcde", want: Launcher{Namespace: "shop", Base: ("virt-launcher-" + long)[:58]}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := LauncherOfPod(test.uid, test.namespace, test.pod)
			if ok == test.none || ok && got != test.want {
				t.Errorf("%+v, %v", got, ok)
			}
		})
	}
}

func TestVMsOf(t *testing.T) {
	long := strings.Repeat("x", 63)
	vms := VMs{
		{UID: "1"}: {Watts: 1},
		{Namespace: "shop", Base: "virt-launcher-web-"}:                       {Watts: 2},
		{Namespace: "shop", Base: ("virt-launcher-" + long + "-")[:mostBase]}: {Watts: 3},
		{}: {Watts: 9},
	}
	for _, test := range []struct {
		uid, namespace, name string
		want                 units.Watts
	}{
		{"1", "any", "any", 1}, {"1", "shop", "web", 1}, {"2", "shop", "web", 2}, {"", "shop", "web", 2},
		{"2", "lab", "web", 0}, {"2", "shop", "we", 0}, {"2", "shop", "web-1", 0}, {"2", "shop", long, 3}, {"", "", "", 0},
	} {
		if got, found := vms.Of(test.uid, test.namespace, test.name); got.Watts != test.want || found != (test.want > 0) {
			t.Errorf("%+v: %v, %v", test, got.Watts, found)
		}
	}
}

func TestVMsRenewed(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	figure := func(watts units.Watts, age time.Duration) model.Power {
		return model.Power{Watts: watts, Time: now.Add(-age)}
	}
	known := VMs{
		{UID: "kept"}: figure(1, 30*time.Second), {UID: "newer"}: figure(2, 30*time.Second),
		{UID: "gone"}: figure(3, 2*time.Minute), {UID: "back in time"}: figure(4, time.Second),
	}
	got := known.renewed(VMs{
		{UID: "newer"}: figure(20, 0), {UID: "stale"}: figure(5, 2*time.Minute),
		{UID: "back in time"}: figure(40, 20*time.Second), {UID: "future"}: figure(6, -time.Hour),
	}, time.Minute, now)
	want := VMs{
		{UID: "kept"}: figure(1, 30*time.Second), {UID: "newer"}: figure(20, 0), {UID: "back in time"}: figure(4, time.Second),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	flood := VMs{}
	for i := range 2 * mostVMs {
		flood[Launcher{UID: fmt.Sprint(i)}] = figure(1, 0)
	}
	if got := got.renewed(flood, time.Minute, now); len(got) != mostVMs {
		t.Errorf("%d VMs are kept, want %d", len(got), mostVMs)
	}
}

// The Meter keeps a VM's last figure until it is too old, whatever fails.
func TestMeterVMs(t *testing.T) {
	inBubble(t, func(w *world) {
		asked := target("https://a", "n", "m")
		asked.Server.Freshness = time.Minute
		vms := func(names ...string) func(context.Context, []Node) (Answer, error) {
			return func(context.Context, []Node) (Answer, error) {
				answer := Answer{VMs: map[string]VMs{"n": {}}}
				for _, name := range names {
					answer.VMs["n"][Launcher{UID: name}] = model.Power{Watts: 5, Time: time.Now()}
				}
				return answer, nil
			}
		}
		var m *Meter
		check := func(what string, want ...string) {
			w.Helper()
			got := m.VMs(asked.Server, "n")
			if len(got) != len(want) {
				w.Errorf("%s: %v, want %v", what, got, want)
			}
			for _, name := range want {
				if _, found := got.Of(name, "", ""); !found {
					w.Errorf("%s: %v, want %v", what, got, want)
				}
			}
		}
		w.answers["https://a"] = vms("x", "y")
		m = w.start(asked)
		check("asked", "x", "y")
		if got := m.VMs(asked.Server, "m"); len(got) > 0 {
			w.Errorf("the other node has %v", got)
		}
		w.change(func() { w.answers["https://a"] = vms("x") })
		after(2 * interval)
		check("one is missing", "x", "y")
		after(4 * interval)
		check("one is missing for long", "x")
		w.change(func() { w.answers["https://a"] = fails(errors.New("refused")) })
		after(2 * interval)
		check("the server fails", "x")
		after(4 * interval)
		check("the server fails for long")
		w.change(func() { w.targets = nil })
		after(interval)
		synctest.Wait()
		if got := m.VMs(asked.Server, "n"); got != nil {
			w.Errorf("forgotten, and still %v", got)
		}
	})
}
