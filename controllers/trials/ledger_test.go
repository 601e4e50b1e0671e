package trials

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/ledger"
	"github.com/joulevirt/joulevirt/internal/trials"
	"github.com/joulevirt/joulevirt/test/controllertest"
)

// keeping is one API server and the managers that keep ledgers there.
type keeping struct {
	*testing.T
	client   client.WithWatch
	clock    *testingclock.FakeClock
	recorder *events.FakeRecorder
	// broken is what the API server answers to writes of statuses.
	broken error
	writes int
}

func newKeeping(t *testing.T, existing ...client.Object) *keeping {
	t.Helper()
	scheme, err := objects.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	s := &keeping{T: t, clock: testingclock.NewFakeClock(controllertest.StatusTime()), recorder: events.NewFakeRecorder(100)}
	s.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(existing...).WithStatusSubresource(&v1alpha1.EnergyLedger{}, &v1alpha1.EnergyPolicy{}).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourceUpdate: func(ctx context.Context, c client.Client, name string, object client.Object, o ...client.SubResourceUpdateOption) error {
				if s.broken != nil {
					return s.broken
				}
				s.writes++
				return c.SubResource(name).Update(ctx, object, o...)
			},
		}).Build()
	return s
}

// manager is one that leads, with a memory of its own.
func (s *keeping) manager() *LedgerKeeper {
	return NewLedgerKeeper(LedgerKeeperOptions{
		MemoryOptions: DefaultMemoryOptions(), Memory: NewMemory(s.clock),
		Cached: s.client, Live: s.client, Writer: s.client, Recorder: s.recorder,
		Clock: s.clock, Log: logr.Discard(), Reported: func(context.Context) {},
	})
}

func (s *keeping) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// after lets time pass and a manager do what is due then.
func (s *keeping) after(d time.Duration, managers ...*LedgerKeeper) {
	s.Helper()
	s.clock.Step(d)
	for _, k := range managers {
		s.must(k.round(s.Context()))
	}
}

// book lets a manager book strata in which a lever saved about 5 % of 60 kJ.
func (s *keeping) book(k *LedgerKeeper, _ string, hoursAgo int) {
	s.Helper()
	at := s.clock.Now().Add(-time.Duration(hoursAgo) * time.Hour)
	known := k.Memory.View("p", func(_ *trials.Trials, l *ledger.Ledger) {
		before := &ledger.Comparison{Joules: 6e3, Log: -0.05}
		for range 10 {
			l.Book(v1alpha1.LeverBuffering, at, ledger.Comparison{Joules: 6e3 + float64(hoursAgo)/10, Log: -0.05}, before)
		}
	})
	if !known {
		s.Fatal("the policy was not loaded")
	}
}

// saved are the kilojoules that a manager knows of.
func saved(k *LedgerKeeper) int {
	var out float64
	k.Memory.View("p", func(_ *trials.Trials, l *ledger.Ledger) { out = l.Statement(ledger.AllTime, false).Saved.Value })
	return int(out / 1000)
}

func (s *keeping) stored() *v1alpha1.EnergyLedger {
	s.Helper()
	object := &v1alpha1.EnergyLedger{}
	s.must(s.client.Get(s.Context(), client.ObjectKey{Name: "p"}, object))
	return object
}

// says compares what the policy's status says with "Type=Status Reason" words, and returns
// all messages.
func (s *keeping) says(k *LedgerKeeper, want ...string) string {
	s.Helper()
	var got []string
	var messages strings.Builder
	for _, c := range k.Conditions(ledgerPolicy("p", "1")) {
		got = append(got, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason))
		messages.WriteString(c.Message + "\n")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.Errorf("conditions (-want +got):\n%s\n%s", diff, messages.String())
	}
	return messages.String()
}

func ledgerPolicy(name, uid string) *v1alpha1.EnergyPolicy {
	return &v1alpha1.EnergyPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), Generation: 1}}
}

const ledgerIsStored = "LedgerStored=True LedgerStored"

func TestLedgersOutliveManagers(t *testing.T) {
	s := newKeeping(t, ledgerPolicy("p", "1"))
	first := s.manager()
	s.says(first)
	s.after(0, first)
	s.says(first, ledgerIsStored)
	if owners := s.stored().OwnerReferences; len(owners) != 1 || owners[0].UID != "1" || owners[0].Kind != "EnergyPolicy" || owners[0].BlockOwnerDeletion != nil {
		t.Errorf("owned by %+v", owners)
	}
	s.book(first, "a", 5)
	writes := s.writes
	s.after(5*time.Minute, first)
	if s.writes != writes {
		t.Error("what was booked was stored at once")
	}
	s.after(6*time.Minute, first)
	if s.writes != writes+1 {
		t.Errorf("%d writes after 11 minutes, want 1", s.writes-writes)
	}
	// What is decided waits for more, for seconds.
	s.book(first, "a", 4)
	first.Changed("p")
	s.after(time.Second, first)
	s.after(5*time.Second, first)
	if s.writes != writes+2 {
		t.Errorf("%d writes after a decision, want 2", s.writes-writes)
	}
	// Nothing new is no write.
	s.after(time.Hour, first)
	if s.writes != writes+2 {
		t.Errorf("%d writes though nothing is new", s.writes-writes)
	}
	// The end of a manager stores what is left.
	s.book(first, "b", 3)
	ended, end := context.WithCancel(t.Context())
	end()
	s.must(first.Start(ended))
	second := s.manager()
	s.after(0, second)
	if saved(first) != 9 || saved(second) != saved(first) {
		t.Errorf("saved %d kJ by the first manager, %d by the second, want 9 by both", saved(first), saved(second))
	}
}

// Where another manager wrote meanwhile, what is stored counts: it is read again.
func TestLedgersOfTwoManagers(t *testing.T) {
	s := newKeeping(t, ledgerPolicy("p", "1"))
	old, young := s.manager(), s.manager()
	s.after(0, old, young)
	s.book(old, "b", 8)
	s.book(young, "c", 7)
	s.after(time.Hour, young, old)
	if words := s.says(old, "LedgerStored=False LedgerNotWritten"); !strings.Contains(words, "is read again") {
		t.Errorf("messages: %s", words)
	}
	s.after(time.Minute, old)
	s.says(old, ledgerIsStored)
	if saved(old) != 3 || saved(young) != 3 {
		t.Errorf("saved %d kJ by the one, %d by the other, want the 3 that are stored", saved(old), saved(young))
	}
	s.book(old, "b", 6)
	s.after(time.Hour, old)
	third := s.manager()
	s.after(0, third)
	if saved(third) != 6 {
		t.Errorf("%d kJ are stored, want 6", saved(third))
	}
}

func TestLedgersThatCannotBeRead(t *testing.T) {
	s := newKeeping(t, ledgerPolicy("p", "1"))
	first := s.manager()
	s.after(0, first)
	s.book(first, "a", 5)
	s.after(time.Hour, first)
	edited := s.stored()
	edited.Status.Memory[10] ^= 1
	s.must(s.client.Status().Update(t.Context(), edited))

	// One that starts knows nothing, and nothing is begun.
	second := s.manager()
	s.after(0, second)
	words := s.says(second, "LedgerStored=False LedgerUnreadable")
	for _, want := range []string{"status.memory", "kubectl delete energyledger p", "nothing is booked"} {
		if !strings.Contains(words, want) {
			t.Errorf("no %q in: %s", want, words)
		}
	}
	if second.Memory.View("p", func(*trials.Trials, *ledger.Ledger) {}) {
		t.Error("the policy was begun")
	}
	s.after(time.Hour, second, second)
	if got := s.stored(); got.ResourceVersion != edited.ResourceVersion {
		t.Error("the object was written over")
	}
	if len(s.recorder.Events) != 1 {
		t.Errorf("%d Events, want one", len(s.recorder.Events))
	}
	// Deleted, it is made anew, with nothing.
	s.must(s.client.Delete(t.Context(), edited))
	s.after(time.Hour, second)
	s.says(second, ledgerIsStored)
	if saved(second) != 0 {
		t.Errorf("%d kJ are known after all, want none", saved(second))
	}
}

// withoutKind answers as API servers do that do not have the kind yet.
type withoutKind struct{ client.Reader }

func (withoutKind) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return fmt.Errorf("look up: %w", &meta.NoKindMatchError{
		GroupKind: v1alpha1.GroupVersion.WithKind("EnergyLedger").GroupKind(), SearchedVersions: []string{"v1alpha1"},
	})
}

func TestLedgersWithoutTheirKind(t *testing.T) {
	s := newKeeping(t, ledgerPolicy("p", "1"))
	k := s.manager()
	there := k.Live
	k.Live = withoutKind{there}
	s.after(0, k)
	if words := s.says(k, "LedgerStored=False AwaitingLedger"); !strings.Contains(words, "kubectl apply --server-side -k config/crd") {
		t.Errorf("messages: %s", words)
	}
	k.Live = there
	s.after(time.Minute, k)
	s.says(k, ledgerIsStored)
}

func TestLedgersOfOtherPolicies(t *testing.T) {
	s := newKeeping(t, ledgerPolicy("p", "1"))
	first := s.manager()
	s.after(0, first)
	s.book(first, "a", 5)
	s.after(time.Hour, first)
	// The policy is deleted and made anew before its ledger went.
	s.must(s.client.Delete(t.Context(), ledgerPolicy("p", "1")))
	s.must(s.client.Create(t.Context(), ledgerPolicy("p", "2")))
	s.after(time.Minute, first)
	again := ledgerPolicy("p", "2")
	if got := first.Conditions(again); len(got) != 1 || got[0].Reason != v1alpha1.ReasonLedgerUnreadable {
		t.Errorf("conditions %+v", got)
	}
	if saved(first) != 0 {
		t.Error("the new policy has the savings of the old one")
	}
	// Left behind without an owner, it is the new policy's.
	orphan := s.stored()
	orphan.OwnerReferences = nil
	s.must(s.client.Update(t.Context(), orphan))
	s.after(time.Minute, first)
	if got := s.stored().OwnerReferences; saved(first) != 3 || len(got) != 1 || got[0].UID != "2" {
		t.Errorf("%d kJ are known, owned by %+v", saved(first), got)
	}
	// A policy that is gone is forgotten, and its object left to go by itself.
	s.must(s.client.Delete(t.Context(), again))
	s.after(time.Minute, first)
	if first.Memory.View("p", func(*trials.Trials, *ledger.Ledger) {}) || len(first.Conditions(again)) != 0 {
		t.Error("the policy is still known")
	}
	s.stored()
}

func TestLedgersThatCannotBeWritten(t *testing.T) {
	s := newKeeping(t, ledgerPolicy("p", "1"))
	k := s.manager()
	s.after(0, k)
	before := s.stored()
	home := k.home(ledgerPolicy("p", "1"))
	err := k.write(t.Context(), "p", home, make([]byte, 800<<10))
	if k.reportStored(home, err); s.stored().ResourceVersion != before.ResourceVersion {
		t.Error("what is too large was written")
	}
	if words := s.says(k, "LedgerStored=False LedgerNotWritten"); !strings.Contains(words, "spec.nodeSelector") {
		t.Errorf("messages: %s", words)
	}
	s.book(k, "a", 5)
	s.broken = errors.New("etcd is full")
	s.after(time.Hour, k)
	if words := s.says(k, "LedgerStored=False LedgerNotWritten"); !strings.Contains(words, "etcd is full") {
		t.Errorf("messages: %s", words)
	}
	s.broken = nil
	s.after(time.Minute, k)
	s.says(k, ledgerIsStored)
	if next := s.manager(); next != nil {
		s.after(0, next)
		if saved(next) != 3 {
			t.Errorf("%d kJ are stored, want 3", saved(next))
		}
	}
}
