package page

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
)

// people is an API server that knows some tokens. The real one is in test/page: here are the
// times and the counts.
type people struct {
	gate    *gate
	clock   *clocktesting.FakeClock
	reviews atomic.Int64
	down    atomic.Bool
	// allowed is how many of the needed kinds may be listed, the first of them.
	allowed atomic.Int64
}

func newPeople() *people {
	p := &people{clock: clocktesting.NewFakeClock(time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC))}
	p.allowed.Store(int64(len(needed())))
	clients := fake.NewClientset()
	clients.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		p.reviews.Add(1)
		if p.down.Load() {
			return true, nil, errors.New("connection refused")
		}
		review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		review.Status.Authenticated = review.Spec.Token == "good"
		review.Status.User.Username = "ann"
		return true, review, nil
	})
	clients.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		review.Status.Allowed = review.Spec.User == "ann" && int64(slices.Index(needed(), review.Spec.ResourceAttributes.Resource)) < p.allowed.Load()
		return true, review, nil
	})
	p.gate = newGate(clients, p.clock)
	return p
}

// TestVerdicts: many ask at once, the API server is asked once, and again after a minute.
func TestVerdicts(t *testing.T) {
	p := newPeople()
	ask := func() {
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if err := p.gate.admit(t.Context(), "good", "10.0.0.1"); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	ask()
	if got := p.reviews.Load(); got != 1 {
		t.Errorf("%d reviews, want 1", got)
	}
	p.clock.Step(verdictAge + time.Second)
	ask()
	if got := p.reviews.Load(); got != 2 {
		t.Errorf("%d reviews after a minute, want 2", got)
	}
}

// TestDownIsNoVerdict: what the API server does not say is asked again.
func TestDownIsNoVerdict(t *testing.T) {
	p := newPeople()
	p.down.Store(true)
	var unasked *unreviewed
	if err := p.gate.admit(t.Context(), "good", "10.0.0.1"); !errors.As(err, &unasked) {
		t.Fatalf("%v, want that it was not reviewed", err)
	}
	p.down.Store(false)
	deadline := time.Now().Add(time.Minute)
	for p.gate.admit(t.Context(), "good", "10.0.0.1") != nil {
		if time.Now().After(deadline) {
			t.Fatal("the token is refused still")
		}
	}
}

func TestMissingRightIsNamed(t *testing.T) {
	p := newPeople()
	p.allowed.Store(1)
	var right *denied
	if err := p.gate.admit(t.Context(), "good", "10.0.0.1"); !errors.As(err, &right) || right.user != "ann" || right.resource != needed()[1] {
		t.Errorf("%v, want the second kind named", err)
	}
}

// TestLimits: an address that guesses is stopped, others are not, and later it may again.
func TestLimits(t *testing.T) {
	p := newPeople()
	if err := p.gate.admit(t.Context(), "good", "10.0.0.9"); err != nil {
		t.Fatal(err)
	}
	p.clock.Step(verdictAge + time.Second)
	guess := func(i int) error { return p.gate.admit(t.Context(), fmt.Sprintf("guess-%d", i), "10.0.0.9") }
	for i := range failuresAtOnce {
		if err := guess(i); !errors.Is(err, errUnknown) {
			t.Fatalf("guess %d: %v", i, err)
		}
		p.settle(t, int64(i+1))
	}
	if err := guess(1000); !errors.Is(err, errTooMany) {
		t.Errorf("%v, want it refused", err)
	}
	before := p.reviews.Load()
	if err := p.gate.admit(t.Context(), "good", "10.0.0.9"); err != nil || p.reviews.Load() != before+1 {
		t.Errorf("who was let in from the same address: %v after %d reviews, want one", err, p.reviews.Load()-before)
	}
	before = p.reviews.Load()
	if err := guess(1002); !errors.Is(err, errTooMany) {
		t.Errorf("%v, want it refused", err)
	}
	if p.reviews.Load() != before {
		t.Error("the API server was asked about a token that was refused")
	}
	if err := p.gate.admit(t.Context(), "good", "10.0.0.1"); err != nil {
		t.Errorf("another address: %v", err)
	}
	p.clock.Step(2 * failureInterval)
	if err := guess(1001); !errors.Is(err, errUnknown) {
		t.Errorf("%v after a while, want it tried", err)
	}
}

// settle waits until failures are counted, which is after they were told.
func (p *people) settle(t *testing.T, failures int64) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		p.gate.limits.mu.Lock()
		of := p.gate.limits.by["10.0.0.9"]
		counted := of != nil && of.TokensAt(p.clock.Now()) <= float64(failuresAtOnce-failures)
		p.gate.limits.mu.Unlock()
		if counted {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the failure is not counted")
		}
	}
}

// TestBoundedMemory: no number of tokens and addresses takes more memory than is set.
func TestBoundedMemory(t *testing.T) {
	p := newPeople()
	for i := range 3 * mostVerdicts {
		p.clock.Step(time.Second)
		_ = p.gate.admit(t.Context(), fmt.Sprintf("token-%d", i), fmt.Sprintf("address-%d", i)) // refused, as all of them
	}
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	if n := len(p.gate.verdicts); n > mostVerdicts {
		t.Errorf("%d verdicts, want at most %d", n, mostVerdicts)
	}
	p.gate.limits.mu.Lock()
	defer p.gate.limits.mu.Unlock()
	if n := len(p.gate.limits.by); n > mostAddresses {
		t.Errorf("%d addresses, want at most %d", n, mostAddresses)
	}
}
