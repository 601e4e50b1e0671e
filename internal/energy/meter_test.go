package energy

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// world is what a Meter meets: policies, Secrets and servers. Tests run in a
// bubble, in which time goes on when everybody waits.
type world struct {
	*testing.T
	mu      sync.Mutex
	targets []Target
	err     error
	secrets map[string]map[string][]byte
	// secretErr is what reading any Secret gives. Nil: what is in secrets.
	secretErr error
	// answers by the server's URL.
	answers map[string]func(ctx context.Context, nodes []Node) (Answer, error)
	// asked is how often each server was asked, with which token last.
	asked  map[string]int
	tokens map[string]string
	made   int
	closed int
}

func (w *world) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *world) count(url string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked[url]
}

// Secret implements Secrets.
func (w *world) Secret(_ context.Context, name string) (map[string][]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	data, found := w.secrets[name]
	switch {
	case w.secretErr != nil:
		return nil, w.secretErr
	case !found:
		return nil, Refuse(ReasonCredentials, "Secret %s does not exist", name)
	}
	return data, nil
}

type fakeSource struct {
	world *world
	url   string
	token string
}

func (s *fakeSource) Read(ctx context.Context, nodes []Node) (Answer, error) {
	s.world.mu.Lock()
	answer := s.world.answers[s.url]
	s.world.asked[s.url]++
	s.world.tokens[s.url] = s.token
	s.world.mu.Unlock()
	return answer(ctx, nodes)
}

func (s *fakeSource) Close() error {
	s.world.change(func() { s.world.closed++ })
	return nil
}

// inBubble runs a test in which time goes on when everybody waits.
func inBubble(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(&world{
			T: t, asked: map[string]int{}, tokens: map[string]string{}, secrets: map[string]map[string][]byte{},
			answers: map[string]func(context.Context, []Node) (Answer, error){},
		})
	})
}

// start starts a Meter that asks every 15 s, until the test ends. It returns
// after the first round.
func (w *world) start(targets ...Target) *Meter {
	w.targets = targets
	m := NewMeter(MeterOptions{
		Targets: func(context.Context) ([]Target, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.targets, w.err
		},
		Secrets: w, NewSource: w.newSource,
		Answered: func(context.Context, Server, error, time.Duration) {},
		Interval: interval, Clock: clock.RealClock{}, Log: logr.Discard(),
	})
	go func() {
		if err := m.Start(w.Context()); err != nil {
			w.Error(err)
		}
	}()
	synctest.Wait()
	return m
}

const interval = 15 * time.Second

// after lets time pass, and what is then due happen.
func after(d time.Duration) {
	<-time.After(d) // of the bubble's clock
	synctest.Wait()
}

func (w *world) newSource(server Server, credentials Credentials) (Source, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made++
	return &fakeSource{world: w, url: server.URL, token: string(credentials.Token)}, nil
}

func server(url string) Server { return Server{URL: url, Timeout: 10 * time.Second} }

func target(url string, nodes ...string) Target {
	t := Target{Server: server(url)}
	for _, node := range nodes {
		t.Nodes = append(t.Nodes, Node{Name: node})
	}
	return t
}

// says answers with the same watts for all nodes, a little noisy.
func says(watts float64) func(context.Context, []Node) (Answer, error) {
	return func(_ context.Context, nodes []Node) (Answer, error) {
		answer := Answer{Readings: map[string]model.Power{}}
		for _, node := range nodes {
			noise := float64(time.Now().UnixNano()%1000) / 1e6
			answer.Readings[node.Name] = model.Power{Scope: v1alpha1.PowerScopePackage, Watts: units.Watts(watts + noise), Time: time.Now()}
		}
		return answer, nil
	}
}

// fails answers with an error.
func fails(err error) func(context.Context, []Node) (Answer, error) {
	return func(context.Context, []Node) (Answer, error) { return Answer{}, err }
}

// check compares what is known of a node: watts, rounded, and the reason of the
// refusal.
func (w *world) check(m *Meter, s Server, node string, watts float64, reason Reason) Candidate {
	w.Helper()
	got := m.Candidate(s, node)
	if (got.Reading != nil) != (watts != 0) || got.Reading != nil && (float64(got.Reading.Watts) < watts || float64(got.Reading.Watts) > watts+1) {
		w.Errorf("%s of %s: reading %+v, want %v W", node, s, got.Reading, watts)
	}
	is := Reason("")
	if got.Refused != nil {
		is = got.Refused.Reason
	}
	if is != reason {
		w.Errorf("%s of %s: refused for %q (%v), want %q", node, s, is, got.Refused, reason)
	}
	return got
}

func TestMeterReads(t *testing.T) {
	inBubble(t, func(w *world) {
		w.answers["https://a"] = says(100)
		m := w.start(target("https://a", "n1", "n2"))
		start := time.Now()
		for _, node := range []string{"n1", "n2"} {
			got := w.check(m, server("https://a"), node, 100, "")
			if got.Reading.Source != v1alpha1.PowerPrometheus || !got.Since.Equal(start) {
				t.Errorf("%+v since %v, want source Prometheus since %v", got.Reading, got.Since, start)
			}
		}
		w.check(m, server("https://b"), "n1", 0, "")
		w.check(m, server("https://a"), "n3", 0, "")
		after(interval)
		if got := m.Candidate(server("https://a"), "n1"); !got.Reading.Time.Equal(start.Add(interval)) || !got.Since.Equal(start) {
			t.Errorf("after another round %+v since %v", got.Reading, got.Since)
		}
		if up := m.Answers(); len(up) != 1 || !up[server("https://a")] || w.made != 1 {
			t.Errorf("answers %v, %d sources made", up, w.made)
		}
	})
}

func TestMeterRefuses(t *testing.T) {
	reading := func(power model.Power) func(context.Context, []Node) (Answer, error) {
		return func(context.Context, []Node) (Answer, error) {
			if power.Time.IsZero() {
				power.Time = time.Now()
			}
			return Answer{Readings: map[string]model.Power{"n": power}}, nil
		}
	}
	for name, test := range map[string]struct {
		answer func(context.Context, []Node) (Answer, error)
		want   Reason
	}{
		"no series": {func(context.Context, []Node) (Answer, error) { return Answer{}, nil }, ReasonNoSeries},
		"refused by name": {func(context.Context, []Node) (Answer, error) {
			return Answer{Refused: map[string]*Refusal{"n": Refuse(ReasonManySeries, "two")}}, nil
		}, ReasonManySeries},
		"implausible":    {reading(model.Power{Scope: v1alpha1.PowerScopePackage, Watts: -1}), ReasonImplausible},
		"a thousandfold": {reading(model.Power{Scope: v1alpha1.PowerScopePackage, Watts: 49_000}), ReasonJumped},
		"of the future":  {reading(model.Power{Scope: v1alpha1.PowerScopePackage, Watts: 100, Time: time.Now().Add(100 * time.Hour)}), ReasonImplausible},
		"unauthorized":   {fails(Refuse(ReasonUnauthorized, "401")), ReasonUnauthorized},
		"another error":  {fails(errors.New("connection refused")), ReasonUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.answers["https://a"] = says(10)
				m := w.start(target("https://a", "n"))
				good := w.check(m, server("https://a"), "n", 10, "")
				w.change(func() { w.answers["https://a"] = test.answer })
				after(interval)
				refused := w.check(m, server("https://a"), "n", 10, test.want)
				if refused.Reading != good.Reading {
					t.Errorf("the last good reading is %+v, was %+v", refused.Reading, good.Reading)
				}
				if up := m.Answers()[server("https://a")]; up != (test.want != ReasonUnauthorized && test.want != ReasonUnreachable) {
					t.Errorf("the server answered: %v", up)
				}
				w.change(func() { w.answers["https://a"] = says(10) })
				after(interval)
				w.check(m, server("https://a"), "n", 10, "")
			})
		})
	}
}

// A meter that suddenly measures another part of the node may be somebody else's: it is believed
// when it goes on, and what was measured before is not forgotten meanwhile.
func TestMeterOfAnotherScope(t *testing.T) {
	inBubble(t, func(w *world) {
		w.answers["https://a"] = says(100)
		m := w.start(target("https://a", "n"))
		watts := units.Watts(150)
		w.change(func() {
			w.answers["https://a"] = func(context.Context, []Node) (Answer, error) {
				watts++
				return Answer{Readings: map[string]model.Power{"n": {Scope: v1alpha1.PowerScopePlatform, Watts: watts, Time: time.Now()}}}, nil
			}
		})
		after(interval)
		refused := w.check(m, server("https://a"), "n", 100, ReasonJumped)
		if !strings.Contains(refused.Refused.Message, "scope Platform after Package") {
			t.Errorf("message %q", refused.Refused.Message)
		}
		after(believeAfter - 2*interval)
		w.check(m, server("https://a"), "n", 100, ReasonJumped)
		after(2 * interval)
		if got := m.Candidate(server("https://a"), "n"); got.Refused != nil || got.Reading.Scope != v1alpha1.PowerScopePlatform {
			t.Errorf("after %v: %+v", believeAfter, got)
		}
	})
}

// A server that never answers is asked once per timeout, and delays nobody.
func TestMeterSlowServer(t *testing.T) {
	inBubble(t, func(w *world) {
		w.answers["https://slow"] = func(ctx context.Context, _ []Node) (Answer, error) {
			<-ctx.Done()
			return Answer{}, ctx.Err()
		}
		release := make(chan struct{})
		w.answers["https://deaf"] = func(context.Context, []Node) (Answer, error) { // does not heed its context
			<-release
			return says(100)(context.Background(), []Node{{Name: "n"}})
		}
		w.answers["https://quick"] = says(100)
		slow := target("https://slow", "n")
		slow.Server.Timeout = 50 * time.Second
		m := w.start(slow, target("https://deaf", "n"), target("https://quick", "n"))
		after(61 * time.Second)
		for url, want := range map[string]int{"https://slow": 2, "https://deaf": 1, "https://quick": 5} {
			if got := w.count(url); got != want {
				t.Errorf("%s was asked %d times in 61 s, want %d", url, got, want)
			}
		}
		w.check(m, server("https://quick"), "n", 100, "")
		refused := w.check(m, slow.Server, "n", 0, ReasonUnreachable)
		if !strings.Contains(refused.Refused.Message, "https://slow did not answer within 50s") {
			t.Errorf("message %q", refused.Refused.Message)
		}
		w.check(m, server("https://deaf"), "n", 0, "")
		close(release)
		after(0)
		w.check(m, server("https://deaf"), "n", 100, "")
	})
}

func TestMeterForgets(t *testing.T) {
	inBubble(t, func(w *world) {
		w.answers["https://a"], w.answers["https://b"] = says(100), says(200)
		release := make(chan struct{})
		w.answers["https://hangs"] = func(ctx context.Context, nodes []Node) (Answer, error) {
			<-release
			return says(300)(ctx, nodes)
		}
		m := w.start(target("https://a", "n1", "n2"), target("https://b", "n1"), target("https://hangs", "n1"))
		w.change(func() { w.targets = []Target{target("https://a", "n1")} })
		after(interval)
		w.check(m, server("https://a"), "n1", 100, "")
		w.check(m, server("https://a"), "n2", 0, "")
		w.check(m, server("https://b"), "n1", 0, "")
		close(release)
		after(0)
		w.check(m, server("https://hangs"), "n1", 0, "")
		if len(m.servers) != 1 || w.closed != 2 {
			t.Errorf("%d servers known, %d sources closed, want 1 and 2", len(m.servers), w.closed)
		}
		// Policies that cannot be read are no reason to forget.
		w.change(func() { w.err = errors.New("no list") })
		after(interval)
		w.check(m, server("https://a"), "n1", 100, "")
	})
}

func TestMeterWakeAsksNewServers(t *testing.T) {
	inBubble(t, func(w *world) {
		w.answers["https://a"], w.answers["https://b"] = says(100), says(200)
		m := w.start(target("https://a", "n"))
		w.change(func() { w.targets = append(w.targets, target("https://b", "n")) })
		after(time.Second)
		w.check(m, server("https://b"), "n", 0, "")
		m.Wake()
		after(0)
		w.check(m, server("https://b"), "n", 200, "")
		if got := w.count("https://a"); got != 1 {
			t.Errorf("the known server was asked %d times, want once", got)
		}
	})
}

func TestMeterCredentials(t *testing.T) {
	secured := target("https://a", "n")
	secured.Server.Secret = "reader"
	inBubble(t, func(w *world) {
		w.answers["https://a"] = says(100)
		w.secrets["reader"] = map[string][]byte{"token": []byte("one\n")}
		m := w.start(secured)
		step := func(what, token string, made int, reason Reason, change func()) {
			t.Helper()
			w.change(change)
			asked := w.count("https://a")
			after(interval)
			w.check(m, secured.Server, "n", 100, reason)
			if w.tokens["https://a"] != token || w.made != made || w.closed != max(0, made-1) {
				t.Errorf("%s: token %q, %d sources made, %d closed", what, w.tokens["https://a"], w.made, w.closed)
			}
			if now := w.count("https://a"); (now > asked) != (reason == "") {
				t.Errorf("%s: asked %d times, then %d", what, asked, now)
			}
		}
		step("as it was", "one", 1, "", func() {})
		step("rotated", "two", 2, "", func() { w.secrets["reader"] = map[string][]byte{"token": []byte("two")} })
		step("the API server is away", "two", 2, "", func() { w.secretErr = errors.New("connection refused") })
		step("emptied", "two", 2, ReasonCredentials, func() { w.secretErr = nil; w.secrets["reader"] = map[string][]byte{"password": nil} })
		step("deleted", "two", 2, ReasonCredentials, func() { delete(w.secrets, "reader") })
		step("back", "two", 2, "", func() { w.secrets["reader"] = map[string][]byte{"token": []byte("two")} })
	})
	inBubble(t, func(w *world) {
		w.answers["https://a"] = says(100)
		w.secretErr = errors.New("connection refused")
		m := w.start(secured)
		w.check(m, secured.Server, "n", 0, ReasonCredentials)
	})
}

// What no policy could say must not break the others.
func TestMeterUnusableServer(t *testing.T) {
	inBubble(t, func(w *world) {
		w.answers["https://a"] = says(100)
		broken := target("https://user:secret@b", "n")
		broken.Server.Secret = "none"
		m := w.start(broken, target("https://a", "n"))
		w.check(m, broken.Server, "n", 0, ReasonCredentials)
		w.check(m, server("https://a"), "n", 100, "")
		if text := broken.Server.String(); strings.Contains(text, "secret") {
			t.Errorf("the password is shown: %s", text)
		}
	})
}
