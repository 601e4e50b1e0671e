package controllers_test

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	trialing "github.com/joulevirt/joulevirt/controllers/trials"
	"github.com/joulevirt/joulevirt/internal/ledger"
	"github.com/joulevirt/joulevirt/internal/trials"
)

// What another manager stored is reported in the status once the one that leads stores too, and
// by every manager that comes. What nobody can read is left as it is until it is deleted.
func TestLedgerOnARealAPIServer(t *testing.T) {
	s := newScene(t, "ledger", 1)
	policy := s.policy("p", v1alpha1.ModeEnforce, func(spec *v1alpha1.EnergyPolicySpec) {
	})
	s.policyCondition(policy, v1alpha1.ConditionLedgerStored, metav1.ConditionTrue, v1alpha1.ReasonLedgerStored, "")

	// The manager ends, and what it kept has another's hand in it.
	stopManager(t)
	object := &v1alpha1.EnergyLedger{}
	s.must(suite.client.Get(t.Context(), client.ObjectKeyFromObject(policy), object))
	if len(object.OwnerReferences) != 1 || object.OwnerReferences[0].UID != policy.UID {
		t.Errorf("owned by %+v", object.OwnerReferences)
	}
	object.Status.Memory = bookedElsewhere(t)
	s.must(suite.client.Status().Update(t.Context(), object))
	for range 2 {
		startManagerAgain(t)
		s.status(policy, "savings that were booked elsewhere", func(status *v1alpha1.EnergyPolicyStatus) bool {
			return len(status.Savings) > 0 && status.Savings[len(status.Savings)-1].KilowattHours.Value == "0.0513"
		})
		stopManager(t)
	}

	s.must(suite.client.Get(t.Context(), client.ObjectKeyFromObject(policy), object))
	object.Status.Memory = []byte("what nobody can read")
	s.must(suite.client.Status().Update(t.Context(), object))
	startManagerAgain(t)
	s.policyCondition(policy, v1alpha1.ConditionLedgerStored, metav1.ConditionFalse, v1alpha1.ReasonLedgerUnreadable, "")
	s.must(suite.client.Get(t.Context(), client.ObjectKeyFromObject(policy), object))
	if string(object.Status.Memory) != "what nobody can read" {
		t.Error("it was written over")
	}
	s.must(suite.client.Delete(t.Context(), object))
	s.policyCondition(policy, v1alpha1.ConditionLedgerStored, metav1.ConditionTrue, v1alpha1.ReasonLedgerStored, "")
	s.eventually("the EnergyLedger is there again", func(ctx context.Context) error {
		if err := suite.client.Get(ctx, client.ObjectKeyFromObject(policy), object); err != nil {
			return err
		}
		if string(object.Status.Memory) == "what nobody can read" {
			return errors.New("it is the old one")
		}
		return nil
	})
}

// bookedElsewhere is the ledger of a manager that booked 5 % of a kilowatt-hour.
func bookedElsewhere(t *testing.T) []byte {
	t.Helper()
	elsewhere := trialing.NewMemory(clock.RealClock{})
	if err := elsewhere.Load("p", nil); err != nil {
		t.Fatal(err)
	}
	elsewhere.View("p", func(_ *trials.Trials, l *ledger.Ledger) {
		one := ledger.Comparison{Joules: 3.6e5, Log: -0.05}
		for range 10 {
			l.Book(v1alpha1.LeverBuffering, time.Now().Add(-time.Hour), one, &one)
		}
	})
	stored, _, err := elsewhere.Save("p")
	if err != nil {
		t.Fatal(err)
	}
	return stored
}
