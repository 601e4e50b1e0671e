//go:build e2e

package prometheus_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/energy"
	source "github.com/joulevirt/joulevirt/internal/energy/prometheus"
	"github.com/joulevirt/joulevirt/test/prometheus"
)

// steady starts a node of 150 W and waits until that is read.
func steady(t *testing.T, server *prometheus.Server, node string) (*story, *source.Source) {
	t.Helper()
	s := newStory(t, server, node, twoSockets()...)
	from := s.source()
	s.right(from)
	return s, from
}

// right waits for a full reading and checks it.
func (s *story) right(from *source.Source) {
	s.Helper()
	s.good(s.await("a full reading", from, isFull, nil))
}

// good checks a reading, however short.
func (s *story) good(a answer) {
	s.Helper()
	if a.reading != nil {
		s.within("watts", float64(a.reading.Watts), 150, a.reading.IntervalSeconds)
	}
}

// since returns true for a full reading of nothing that was counted before a time.
func since(began time.Time) func(answer) bool {
	return func(a answer) bool { return isFull(a) && a.reading.Time.Add(-interval).After(began) }
}

// TestFaults: with one fault per node, no reading is ever wrong. Faults that a server passes on as
// they are belong to internal/energy.
func TestFaults(t *testing.T) {
	t.Parallel()
	server := start(t, nil)
	for name, run := range map[string]func(*testing.T, *prometheus.Server){
		"reset": func(t *testing.T, server *prometheus.Server) {
			s, from := steady(t, server, "reset")
			began := time.Now()
			s.exporter.Reset("reset")
			s.await("a reading of what was counted since", from, since(began), s.good)
			s.right(from)
		},
		"new-pod": func(t *testing.T, server *prometheus.Server) {
			s, from := steady(t, server, "new-pod")
			s.rescrape(func(target *prometheus.Target) { target.Labels = map[string]string{"pod": "kepler-b"} })
			s.exporter.Reset("new-pod")
			began := time.Now()
			s.await("a reading of the new series", from, since(began), s.good)
			s.right(from)
		},
		"lost-socket": func(t *testing.T, server *prometheus.Server) {
			s, from := steady(t, server, "lost-socket")
			s.exporter.Set("lost-socket", kepler("package", rapl("0"), 80))
			s.await("a part that is missing", from, refusedFor(energy.ReasonAwaiting), s.good)
			if a := s.read(from); a.reason() != energy.ReasonAwaiting {
				t.Errorf("%v, want the half never to be read as the whole", a)
			}
		},
		"gone": testGone,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, server)
		})
	}
}

// testGone: without a page the last reading stays as it is, with its time, until there is a new
// one.
func testGone(t *testing.T, server *prometheus.Server) {
	s, from := steady(t, server, "gone")
	s.exporter.Fail("gone", prometheus.Gone)
	old := s.await("a reading that ages", from, func(a answer) bool {
		return a.reading != nil && time.Since(a.reading.Time) > 3*time.Second
	}, s.good)
	s.good(old)
	s.exporter.Fail("gone", prometheus.Working)
	s.await("a fresh reading", from, func(a answer) bool {
		return a.reading != nil && a.reading.Time.After(old.reading.Time)
	}, s.good)
	s.right(from)
}

func TestOutages(t *testing.T) {
	t.Parallel()
	server := start(t, nil)
	s, from := steady(t, server, "outages")
	t.Run("restarted", func(t *testing.T) {
		before := *s.await("a reading", from, isFull, nil).reading
		if err := server.Restart(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		// What was scraped before is there, so the mean goes on over the gap.
		s.await("a newer reading", from, func(a answer) bool {
			return a.reading != nil && a.reading.Time.After(before.Time)
		}, s.good)
		s.right(from)
	})
	t.Run("data lost", func(t *testing.T) {
		if err := server.Restart(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		s.await("a reading", from, isReading, nil)
		s.right(from)
	})
}

func TestClientCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := ownAuthority(t, dir, "tls")
	server := start(t, &prometheus.TLS{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key"), ClientCAFile: filepath.Join(dir, "tls.crt")})
	s := newStory(t, server, "certified", kepler("package", rapl("0"), 80))
	with := func(credentials energy.Credentials) *source.Source {
		return newSource(t, energy.Server{URL: server.URL}, credentials)
	}
	s.await("a reading", with(energy.Credentials{CA: cert, Cert: cert, Key: key}), isReading, nil)
	other, otherKey := ownAuthority(t, dir, "other")
	for _, credentials := range []energy.Credentials{{CA: cert}, {CA: cert, Cert: other, Key: otherKey}} {
		// Unauthorized, or Unreachable if the server closed the connection before the request
		// was written: the message names the cause in both cases.
		_, err := with(credentials).Read(t.Context(), []energy.Node{s.node})
		if err == nil || !strings.Contains(err.Error(), "client certificate") {
			t.Errorf("Read = %v, want it to name the client certificate", err)
		}
	}
	s.wantFailure(with(energy.Credentials{CA: other, Cert: cert, Key: key}), "CredentialsInvalid", "not trusted")
}

// ownAuthority makes a certificate, and writes it and its key to files.
func ownAuthority(t *testing.T, dir, name string) (cert, key []byte) {
	t.Helper()
	cert, key, err := prometheus.Certificate(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{name + ".crt": cert, name + ".key": key} {
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}
