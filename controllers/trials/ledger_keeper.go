package trials

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// MemoryOptions say how the manager keeps what it remembers of experiments and savings.
type MemoryOptions struct {
	// Store is the longest that something booked waits to be stored, and Settle how long
	// something decided waits for more, at least, and twice that at most.
	Store, Settle time.Duration
}

// DefaultMemoryOptions lose ten minutes of savings when a manager is killed, and write a
// ledger of 1,000 nodes, 200 KB, six times an hour.
func DefaultMemoryOptions() MemoryOptions {
	return MemoryOptions{Store: 10 * time.Minute, Settle: 5 * time.Second}
}

const (
	// ledgerRetry is how long after a failure the API server is asked again.
	ledgerRetry = 30 * time.Second
	// ledgerTimeout bounds one policy's questions to the API server, and all that is
	// stored at the end.
	ledgerTimeout = 10 * time.Second
)

// LedgerKeeper keeps what is remembered of each policy in its EnergyLedger: it reads that
// once, when it starts to lead and when a policy appears, and writes it again and again. It
// is a Runnable of the controller runtime.
//
// EnergyLedgers are read past the cache: they are large, and nobody else writes them.
type LedgerKeeper struct {
	LedgerKeeperOptions
	wake chan struct{}

	// mu guards homes and, in each, word, due and decided. The rest of a home is of the
	// one goroutine that keeps.
	mu    sync.Mutex
	homes map[string]*ledgerHome
}

// LedgerKeeperOptions are what a LedgerKeeper works with.
type LedgerKeeperOptions struct {
	MemoryOptions
	Memory *Memory
	// Cached reads policies, live EnergyLedgers.
	Cached, Live client.Reader
	Writer       client.Client
	Recorder     events.EventRecorder
	Clock        clock.WithTicker
	Log          logr.Logger
	// Reported is told that statuses have something else to say. It may block until the
	// context ends.
	Reported func(context.Context)
}

// ledgerHome is how it stands with the EnergyLedger of one policy.
type ledgerHome struct {
	uid    types.UID
	loaded bool
	// version is the EnergyLedger's resourceVersion as it was last read or written, and
	// stored a sum of what it holds.
	version string
	stored  [32]byte
	// due is when to read or store next. decided is when something was decided that is not
	// stored yet. Zero: nothing was.
	due, decided time.Time
	// reported is what the policy's status says. Its type is empty while nothing is known.
	reported metav1.Condition
}

// NewLedgerKeeper returns a keeper that has read no EnergyLedger yet.
func NewLedgerKeeper(o LedgerKeeperOptions) *LedgerKeeper {
	return &LedgerKeeper{LedgerKeeperOptions: o, wake: make(chan struct{}, 1), homes: map[string]*ledgerHome{}}
}

// NeedLeaderElection is true: only the leader books, and writes.
func (k *LedgerKeeper) NeedLeaderElection() bool { return true }

// Wake looks for new policies at once. It never blocks.
func (k *LedgerKeeper) Wake() {
	select {
	case k.wake <- struct{}{}:
	default: // A wake-up is pending already.
	}
}

// Changed tells that something was decided of a policy that should be stored soon. It never
// blocks.
func (k *LedgerKeeper) Changed(policy string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if home := k.homes[policy]; home != nil && home.decided.IsZero() {
		home.decided = k.Clock.Now()
	}
}

// Conditions are what a policy's status says of its memory: one, or none while that is not known.
func (k *LedgerKeeper) Conditions(policy *v1alpha1.EnergyPolicy) []metav1.Condition {
	k.mu.Lock()
	defer k.mu.Unlock()
	home := k.homes[policy.Name]
	if home == nil || home.uid != policy.UID || home.reported.Type == "" {
		return nil
	}
	return []metav1.Condition{home.reported}
}

// Start keeps until the context ends, and stores what is left then.
func (k *LedgerKeeper) Start(ctx context.Context) error {
	ticker := k.Clock.NewTicker(k.Settle)
	defer ticker.Stop()
	for {
		if err := k.round(ctx); err != nil && ctx.Err() == nil {
			k.Log.Error(err, "no EnergyLedger was read or written in this round")
		}
		select {
		case <-ctx.Done():
			k.finish(ctx)
			return nil
		case <-ticker.C():
		case <-k.wake:
		}
	}
}

// round does for each policy what is due.
func (k *LedgerKeeper) round(ctx context.Context) error {
	var policies v1alpha1.EnergyPolicyList
	if err := k.Cached.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list EnergyPolicies: %w", err)
	}
	k.forgetOthers(policies.Items)
	told := false
	for i := range policies.Items {
		policy := &policies.Items[i]
		if !policy.DeletionTimestamp.IsZero() {
			continue
		}
		home := k.home(policy)
		before := k.reported(home)
		k.keep(ctx, policy, home)
		if now := k.reported(home); now != before {
			told = true
			k.tell(policy, before, now)
		}
	}
	if told {
		k.Reported(ctx)
	}
	return nil
}

// keep does what is due of one policy.
func (k *LedgerKeeper) keep(ctx context.Context, policy *v1alpha1.EnergyPolicy, home *ledgerHome) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	if !k.isDue(home) {
		return
	}
	if home.loaded {
		k.settle(home, k.store(ctx, policy.Name, home))
		return
	}
	if k.load(ctx, policy, home) {
		k.settle(home, k.store(ctx, policy.Name, home)) // so that what does not work is known early
	}
}

// isDue tells whether to read or to store.
func (k *LedgerKeeper) isDue(home *ledgerHome) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.Clock.Now()
	return !now.Before(home.due) || home.loaded && !home.decided.IsZero() && now.Sub(home.decided) >= k.Settle
}

// settle says when to store next, with some jitter: managers of many clusters, or many
// policies, should not write at once.
func (k *LedgerKeeper) settle(home *ledgerHome, done bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !done {
		home.due = k.Clock.Now().Add(min(ledgerRetry, k.Store))
		home.decided = time.Time{}
		return
	}
	home.due = k.Clock.Now().Add(k.Store - rand.N(k.Store/5+1))
}

// finish stores what is left, though the context ended.
func (k *LedgerKeeper) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ledgerTimeout)
	defer cancel()
	k.mu.Lock()
	homes := make(map[string]*ledgerHome, len(k.homes))
	for name, home := range k.homes {
		if home.loaded {
			homes[name] = home
		}
	}
	k.mu.Unlock()
	for name, home := range homes {
		if !k.store(ctx, name, home) {
			k.Log.Info("what was booked and decided last is not stored", "EnergyPolicy", name)
		}
	}
}

// home of a policy. One that was deleted and made anew starts anew.
func (k *LedgerKeeper) home(policy *v1alpha1.EnergyPolicy) *ledgerHome {
	k.mu.Lock()
	defer k.mu.Unlock()
	home := k.homes[policy.Name]
	if home == nil || home.uid != policy.UID {
		if home != nil {
			k.Memory.Forget(policy.Name)
		}
		home = &ledgerHome{uid: policy.UID}
		k.homes[policy.Name] = home
	}
	return home
}

// forgetOthers drops policies that are gone. Their EnergyLedgers go by themselves.
func (k *LedgerKeeper) forgetOthers(policies []v1alpha1.EnergyPolicy) {
	k.mu.Lock()
	defer k.mu.Unlock()
	there := make(map[string]bool, len(policies))
	for i := range policies {
		there[policies[i].Name] = true
	}
	for name := range k.homes {
		if !there[name] {
			delete(k.homes, name)
			k.Memory.Forget(name)
		}
	}
}
