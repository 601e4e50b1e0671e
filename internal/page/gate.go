package page

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

const (
	// verdictAge is how long a verdict on a token holds: who loses a right loses the page
	// as soon.
	verdictAge = time.Minute
	// mostVerdicts that are remembered.
	mostVerdicts = 1024
	// reviewTimeout bounds what is asked about one token.
	reviewTimeout = 10 * time.Second
)

// What is wrong with who calls.
var (
	errNoToken = errors.New("sign in")
	errUnknown = errors.New("the API server does not know this token: it may have expired; get another, for example by kubectl create token")
	errTooMany = errors.New("too many tokens were tried: wait a minute")
)

// unreviewed means that the API server does not say who calls.
type unreviewed struct{ err error }

func (u *unreviewed) Error() string {
	return fmt.Sprintf("the manager cannot ask the API server who you are (%v): try again in a moment, and see that the API server runs", u.err)
}

func (u *unreviewed) Unwrap() error { return u.err }

// denied means that somebody lacks a right.
type denied struct{ user, resource string }

func (d *denied) Error() string {
	return fmt.Sprintf("user %s may not list %s.%s in all namespaces: ask your admin to bind you to ClusterRole joulevirt-viewer by a ClusterRoleBinding",
		d.user, d.resource, v1alpha1.GroupVersion.Group)
}

// needed are the kinds that the page shows: who may not list them all sees nothing.
func needed() []string {
	return []string{"energypolicies", "nodeplans", "nodereports", "vmnetworkprofiles"}
}

// gate says who may read the page: whom the API server knows by a token, and lets list the
// product's objects. Its verdicts are remembered for a minute, by a hash of the token.
type gate struct {
	reviews kubernetes.Interface
	clock   clock.PassiveClock
	limits  *limits

	mu       sync.Mutex
	verdicts map[[sha256.Size]byte]*verdict
}

// verdict on a token.
type verdict struct {
	// decided is closed when the rest is known.
	decided chan struct{}
	err     error
	until   time.Time
}

// wasGood tells whether a verdict let somebody in. A nil verdict did not.
func (v *verdict) wasGood() bool {
	if v == nil {
		return false
	}
	select {
	case <-v.decided:
		return v.err == nil
	default:
		return false
	}
}

func newGate(reviews kubernetes.Interface, clock clock.PassiveClock) *gate {
	return &gate{reviews: reviews, clock: clock, limits: newLimits(), verdicts: map[[sha256.Size]byte]*verdict{}}
}

// admit returns why whom a token is of does not get in. Nil: they do. address is where the token
// comes from.
func (g *gate) admit(ctx context.Context, token, address string) error {
	if token == "" {
		return errNoToken
	}
	key := sha256.Sum256([]byte(token))
	g.mu.Lock()
	v := g.verdicts[key]
	if v == nil || g.clock.Now().After(v.until) {
		// Who was let in goes on, though others guess from the same address, as behind a proxy.
		if !v.wasGood() && !g.limits.mayTry(address, g.clock.Now()) {
			g.mu.Unlock()
			return errTooMany
		}
		v = &verdict{decided: make(chan struct{}), until: g.clock.Now().Add(verdictAge)}
		g.makeRoom()
		g.verdicts[key] = v
		// Others may wait for it: it goes on when this caller leaves.
		go g.decide(context.WithoutCancel(ctx), key, v, token, address)
	}
	g.mu.Unlock()
	select {
	case <-v.decided:
		return v.err
	case <-ctx.Done():
		return &unreviewed{ctx.Err()}
	}
}

func (g *gate) decide(ctx context.Context, key [sha256.Size]byte, v *verdict, token, address string) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	v.err = g.review(ctx, token)
	close(v.decided)
	var unasked *unreviewed
	switch {
	case errors.As(v.err, &unasked):
		// That says nothing about the token: the next asks again.
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.verdicts[key] == v {
			delete(g.verdicts, key)
		}
	case errors.Is(v.err, errUnknown):
		g.limits.failed(address, g.clock.Now())
	}
}

// makeRoom forgets verdicts that are over, and any one when there are too many.
func (g *gate) makeRoom() {
	if len(g.verdicts) < mostVerdicts {
		return
	}
	now := g.clock.Now()
	for key, v := range g.verdicts {
		if now.After(v.until) {
			delete(g.verdicts, key)
		}
	}
	for key := range g.verdicts {
		if len(g.verdicts) < mostVerdicts {
			return
		}
		delete(g.verdicts, key)
	}
}

func (g *gate) review(ctx context.Context, token string) error {
	known, err := g.reviews.AuthenticationV1().TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return &unreviewed{err}
	}
	if !known.Status.Authenticated {
		return errUnknown
	}
	user := known.Status.User
	extra := map[string]authorizationv1.ExtraValue{}
	for name, values := range user.Extra {
		extra[name] = authorizationv1.ExtraValue(values)
	}
	for _, resource := range needed() {
		answer, err := g.reviews.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: "list", Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Resource: resource,
				},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return &unreviewed{err}
		}
		if !answer.Status.Allowed {
			return &denied{user: user.Username, resource: resource}
		}
	}
	return nil
}
