package publish

import (
	"context"
	"crypto/sha256"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
)

const (
	// allowedFor and deniedFor are how long an answer of the API server holds.
	allowedFor, deniedFor = time.Minute, 10 * time.Second
	// mostAnswers are kept, and mostReviews are asked for at once.
	mostAnswers, mostReviews = 64, 4
	reviewTimeout            = 10 * time.Second
)

// Reviewer creates reviews at the API server. A kube.Client is one.
type Reviewer interface {
	Create(ctx context.Context, path string, object runtime.Object) error
}

// Authorizer lets those in whose token the API server knows and whom it lets read a path.
type Authorizer struct {
	reviewer Reviewer
	clock    clock.PassiveClock
	log      logr.Logger
	reviews  chan struct{}

	mu      sync.Mutex
	answers map[question]answer
}

// question names a token and a path.
type question struct {
	token [sha256.Size]byte
	path  string
}

type answer struct {
	status int
	until  time.Time
}

// NewAuthorizer returns an Authorizer that has asked nothing.
func NewAuthorizer(r Reviewer, c clock.PassiveClock, log logr.Logger) *Authorizer {
	return &Authorizer{reviewer: r, clock: c, log: log, reviews: make(chan struct{}, mostReviews), answers: map[question]answer{}}
}

// Guard serves next to those who are let in. Only GET is.
func (a *Authorizer) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := http.StatusMethodNotAllowed
		if r.Method == http.MethodGet {
			status = a.authorize(r)
		}
		if status != http.StatusOK {
			http.Error(w, http.StatusText(status), status)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (a *Authorizer) authorize(r *http.Request) int {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return http.StatusUnauthorized
	}
	asked := question{token: sha256.Sum256([]byte(token)), path: r.URL.Path}
	if status, known := a.recall(asked); known {
		return status
	}
	// Whoever sends tokens that nobody knows has few of them asked about.
	select {
	case a.reviews <- struct{}{}:
		defer func() { <-a.reviews }()
	default:
		return http.StatusTooManyRequests
	}
	ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout)
	defer cancel()
	status, err := a.review(ctx, token, r.URL.Path)
	if err != nil {
		a.log.Info("the API server was not asked who reads metrics", "reason", err.Error())
		return http.StatusInternalServerError
	}
	a.remember(asked, status)
	return status
}

func (a *Authorizer) review(ctx context.Context, token, path string) (int, error) {
	who := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := a.reviewer.Create(ctx, "/apis/authentication.k8s.io/v1/tokenreviews", who); err != nil {
		return 0, err
	}
	if !who.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user := &who.Status.User
	may := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: make(map[string]authorizationv1.ExtraValue, len(user.Extra)),
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
	}}
	for key, values := range user.Extra {
		may.Spec.Extra[key] = authorizationv1.ExtraValue(values)
	}
	if err := a.reviewer.Create(ctx, "/apis/authorization.k8s.io/v1/subjectaccessreviews", may); err != nil {
		return 0, err
	}
	if !may.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}

func (a *Authorizer) recall(asked question) (status int, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	last, known := a.answers[asked]
	return last.status, known && a.clock.Now().Before(last.until)
}

func (a *Authorizer) remember(asked question, status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.answers) >= mostAnswers {
		clear(a.answers)
	}
	span := deniedFor
	if status == http.StatusOK {
		span = allowedFor
	}
	a.answers[asked] = answer{status: status, until: a.clock.Now().Add(span)}
}
