package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestBurn(t *testing.T) {
	counters := &stats{}
	b := &burner{stats: counters}
	post := func(query string) int {
		recorder := httptest.NewRecorder()
		b.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/burn?"+query, nil))
		return recorder.Code
	}
	for _, query := range []string{
		"", "workers=1", "workers=-1&seconds=1", "workers=65&seconds=1", "workers=x&seconds=1",
		"workers=1&seconds=-1", "workers=1&seconds=NaN", "workers=1&seconds=1e9",
	} {
		if code := post(query); code != http.StatusBadRequest {
			t.Errorf("%q was answered with %d", query, code)
		}
	}
	if n := counters.BurningCount.Load(); n != 0 {
		t.Errorf("refused requests started %d workers", n)
	}

	if code := post("workers=2&seconds=60"); code != http.StatusNoContent {
		t.Fatalf("a good request was answered with %d", code)
	}
	if n := counters.BurningCount.Load(); n != 2 {
		t.Errorf("%d workers burn, not 2", n)
	}
	post("workers=0&seconds=0")
	awaitBurning(t, counters, 0)

	post("workers=1&seconds=0.01")
	awaitBurning(t, counters, 0)
}

func awaitBurning(t *testing.T, counters *stats, want int64) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for counters.BurningCount.Load() != want {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%d workers burn, not %d", counters.BurningCount.Load(), want)
		}
	}
}
