package gateway

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/planner/offload"
)

func TestValidate(t *testing.T) {
	good := Config{
		Upstream: "10.0.0.7:80", Listen: ":8080", ProbeListen: ":8081", Store: newStore(t, 64<<20),
		MemoryMin: 32 << 20, MemoryMax: 64 << 20, TargetResponseTime: time.Second, IdleEviction: time.Minute,
	}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		change func(*Config)
		want   []string
	}{
		{func(c *Config) { c.Upstream = "" }, []string{"--upstream", `""`, "10.0.0.7:8080"}},
		{func(c *Config) { c.Upstream = "vm; include /etc/passwd:80" }, []string{"--upstream", "IP address"}},
		{func(c *Config) { c.Upstream = "10.0.0.7:99999" }, []string{"--upstream", "99999"}},
		{func(c *Config) { c.Listen = "8080" }, []string{"--listen", `"8080"`, ":8080"}},
		{func(c *Config) { c.ProbeListen = ":x" }, []string{"--probe-listen", `":x"`}},
		{func(c *Config) { c.MemoryMin = 1 }, []string{"--memory-min is 1", "16777216"}},
		{func(c *Config) { c.MemoryMax = 20 << 20 }, []string{"--memory-max is 20971520", "--memory-min 33554432"}},
		{func(c *Config) { c.MemoryMax = 65 << 20 }, []string{"--store", "67108864", "--memory-max 68157440", "sizeLimit"}},
		{func(c *Config) { c.TargetResponseTime = 0 }, []string{"--target-response-time", "1ms"}},
		{func(c *Config) { c.IdleEviction = 0 }, []string{"--idle-eviction", "1s"}},
		{func(c *Config) { c.Share, c.IdleEviction = c.Store, 0 }, []string{"--idle-eviction", "1s"}},
		{func(c *Config) { c.Share = "/nowhere" }, []string{"--share /nowhere", "no such file", "run as user 107", "107"}},
		{func(c *Config) { c.Share, c.Store = c.Store, "/usr" }, []string{"--store /usr", "on a disk"}},
		{func(c *Config) { c.Store = "/nowhere" }, []string{"--store", "/nowhere", "emptyDir"}},
		{func(c *Config) { c.Store = "/usr" }, []string{"--store", "/usr", "on a disk", "emptyDir of medium Memory"}},
	} {
		c := good
		test.change(&c)
		err := c.Validate()
		for _, want := range test.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the error is %v, want %q in it", err, want)
			}
		}
	}
}

func TestObservation(t *testing.T) {
	var a answers
	log := "MISS 0.500 GET 200 1000 200\nHIT 0.001 GET 206 10 200\nREVALIDATED 0.003 HEAD 304 100 304\n- 9.000 POST 200 5 200\n" +
		"- 100.0 GET 101 5 101\nbroken\nMISS x GET 200 1 200\nBYPASS 0.100 GET 200 7 200\n" +
		"- 0.010 POST 502 9 -\n- 0.010 POST 500 9 500\n- 0.010 POST 502 9 200\n- 0.010 POST 501 9 -\n"
	if err := a.read(strings.NewReader(log)); err != nil {
		t.Fatal(err)
	}
	got := a.take(offload.Tick, 3, 77)
	want := offload.Observation{
		Duration: offload.Tick, Arrivals: 7, Hits: 2, Misses: 2,
		HitTime: 4 * time.Millisecond, MissTime: 600 * time.Millisecond, Used: 77,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("observed, -want +got:\n%s", diff)
	}
	if again := a.take(offload.Tick, -3, 0); again != (offload.Observation{Duration: offload.Tick}) {
		t.Errorf("observed twice: %+v", again)
	}
	if all := a.totals(); all.sentFromStore != 110 || all.sentByVM != 1048 || all.errors != 2 {
		t.Errorf("totals %+v", all)
	}
}

func TestListenAddresses(t *testing.T) {
	for address, want := range map[string]string{"127.0.0.1:80": "127.0.0.1:80", "[::1]:80": "[::1]:80", ":80": "80"} {
		if got := listenAddresses(address); got[0] != want {
			t.Errorf("%s: %q, want %q first", address, got, want)
		}
	}
}
