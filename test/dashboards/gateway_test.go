//go:build e2e

package dashboards

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/gateway"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/debian"
	"github.com/joulevirt/joulevirt/test/prometheus"
)

// startGateway starts a gateway whose clients ask for what is stored and for what is not, and returns
// it as config/prometheus has it scraped.
func startGateway(ctx context.Context, t *testing.T, c *cluster.Cluster) prometheus.Target {
	t.Helper()
	if err := debian.Host().Ensure(ctx, nil, "nginx"); err != nil {
		t.Fatal(err)
	}
	store := t.TempDir()
	if err := unix.Mount("tmpfs", store, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=33554432"); err != nil {
		t.Fatalf("mount a tmpfs (it takes root): %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(store, 0); err != nil {
			t.Error(err)
		}
	})
	vm := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stored" {
			w.Header().Set("Cache-Control", "max-age=3600")
		}
		_, _ = w.Write([]byte("what was computed"))
	}))
	t.Cleanup(vm.Close)
	config := gateway.Config{
		Upstream: vm.Listener.Addr().String(), Listen: freeAddress(t, c), ProbeListen: freeAddress(t, c), Store: store,
		MemoryMin: 16 << 20, MemoryMax: 32 << 20, TargetResponseTime: time.Second, IdleEviction: time.Minute,
	}
	if err := config.Validate(); err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 2)
	go func() { ended <- gateway.Run(running, config, nil, slog.New(slog.NewTextHandler(os.Stderr, nil))) }()
	go func() { download(running, config.Listen, "/stored", "/passed"); ended <- nil }()
	t.Cleanup(func() {
		stop()
		for range cap(ended) {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
	return prometheus.Target{Job: "joulevirt-gateway", Address: config.ProbeListen, Labels: map[string]string{"namespace": namespace, "hybrid_workload": "fleet"}}
}

// download asks for each path again and again. The gateway may not be there yet.
func download(ctx context.Context, address string, paths ...string) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for ctx.Err() == nil {
		for _, path := range paths {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
			if err != nil {
				return
			}
			if response, err := http.DefaultClient.Do(request); err == nil {
				_ = response.Body.Close()
			}
		}
		<-ticker.C
	}
}

// freeAddress is one that nobody else takes before the gateway does.
func freeAddress(t *testing.T, c *cluster.Cluster) string {
	t.Helper()
	port, err := c.TakePort()
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
