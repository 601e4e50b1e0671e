package journal

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
)

func TestTripsAreKeptBesideTheRest(t *testing.T) {
	dir, noon := t.TempDir(), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	trips := []model.Trip{{
		PodUID: "a", Namespace: "shop", Name: "web", Lever: model.LeverAffinity, Symptom: model.SymptomRunDelay,
		Value: 43.2, Limit: 25, Time: noon, Until: noon.Add(5 * time.Minute), Count: 1,
	}}
	j := open(t, dir, "boot-1")
	for _, save := range []func() error{func() error { return j.SaveTrips(trips) }, func() error { return j.Save(entries()) }} {
		if err := save(); err != nil {
			t.Fatal(err)
		}
	}
	j.Close()
	next := open(t, dir, "boot-1")
	if got, err := next.Load(); err != nil || len(got) != len(entries()) {
		t.Errorf("%d threads, %v", len(got), err)
	}
	if diff := cmp.Diff(trips, next.Trips()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	next.Close()
	rebooted := open(t, dir, "boot-2")
	if _, err := rebooted.Load(); err != nil || len(rebooted.Trips()) > 0 {
		t.Errorf("after a reboot: %v, %v", rebooted.Trips(), err)
	}
}
