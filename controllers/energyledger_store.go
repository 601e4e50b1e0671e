package controllers

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/verify/evidence"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// +kubebuilder:rbac:groups=joulevirt.io,resources=energyledgers,verbs=get;create;patch
// +kubebuilder:rbac:groups=joulevirt.io,resources=energyledgers/status,verbs=update

const (
	// mostStored of an EnergyLedger, as JSON has it: etcd takes 1.5 MiB by default.
	mostStored = 1 << 20
	// mostEvidence is what the API takes of evidence.
	mostEvidence = 256 << 10
	// mostConflicts in a row: two managers that write in turns are told of.
	mostConflicts = 3
)

// nothingBooked and keptInMind are what happens while an EnergyLedger cannot be read: when it
// was not read yet, and when it was.
const (
	nothingBooked = "Until then what is in force stays, no trial starts and nothing is booked"
	keptInMind    = "Until then what is booked and decided is kept in memory, and lost with this manager"
)

// load begins a policy with what is stored of it. It returns whether that is done.
func (k *ledgerKeeper) load(ctx context.Context, policy *v1alpha1.EnergyPolicy, home *ledgerHome) bool {
	refused := k.read(ctx, policy, home)
	if refused != nil {
		k.say(home, func(word *ledgerWord) { word.readable = refused })
		k.settle(home, false)
		return false
	}
	k.say(home, func(word *ledgerWord) { word.readable = readableLedger() })
	home.loaded = true
	k.giveEvidence(policy.Name, home)
	return true
}

// read returns why what is stored of a policy is not known. Nil: it is.
func (k *ledgerKeeper) read(ctx context.Context, policy *v1alpha1.EnergyPolicy, home *ledgerHome) *metav1.Condition {
	object, err := k.found(ctx, policy)
	if meta.IsNoMatchError(err) {
		return unreadable(v1alpha1.ReasonAwaitingLedger, "kind EnergyLedger is missing: apply Joulevirt's CRDs of this version: "+
			"kubectl apply --server-side -k config/crd. %s", nothingBooked)
	}
	if err != nil {
		return unreadable(v1alpha1.ReasonAwaitingLedger, "EnergyLedger %s was not read: %v: it is tried again. %s", policy.Name, err, nothingBooked)
	}
	if !isLedgerOf(object, policy) {
		return unreadable(v1alpha1.ReasonLedgerOfAnother, "EnergyLedger %s belongs to a policy of the same name that was deleted, and should go with it soon: "+
			"if it does not, kubectl delete energyledger %s. %s", policy.Name, policy.Name, nothingBooked)
	}
	if err := k.memory.Load(policy.Name, object.Status.Ledger, object.Status.Proofs); err != nil {
		return unreadableBytes(policy.Name, nothingBooked, err)
	}
	home.version, home.stored = object.ResourceVersion, sumOf(&object.Status)
	return nil
}

// found returns the policy's EnergyLedger, which is made when there is none. One that
// belongs to nobody, as it does when a policy was deleted and its dependents were not, is
// taken over.
func (k *ledgerKeeper) found(ctx context.Context, policy *v1alpha1.EnergyPolicy) (*v1alpha1.EnergyLedger, error) {
	object := &v1alpha1.EnergyLedger{}
	err := k.live.Get(ctx, client.ObjectKey{Name: policy.Name}, object)
	switch {
	case apierrors.IsNotFound(err):
		object = newEnergyLedger(policy)
		if err := k.writer.Create(ctx, object); err != nil {
			return nil, fmt.Errorf("create it: %w", err)
		}
		return object, nil
	case err != nil:
		return nil, fmt.Errorf("get it: %w", err)
	case len(object.OwnerReferences) > 0:
		return object, nil
	}
	base := object.DeepCopy()
	object.OwnerReferences = newEnergyLedger(policy).OwnerReferences
	status := object.Status
	if err := k.writer.Patch(ctx, object, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, fmt.Errorf("make it the policy's: %w", err)
	}
	object.Status = status
	return object, nil
}

// newEnergyLedger goes with its policy. It does not keep that from going, for which the
// manager would need more rights.
func newEnergyLedger(policy *v1alpha1.EnergyPolicy) *v1alpha1.EnergyLedger {
	return &v1alpha1.EnergyLedger{ObjectMeta: metav1.ObjectMeta{
		Name: policy.Name,
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "EnergyPolicy", Name: policy.Name, UID: policy.UID,
		}},
	}}
}

func isLedgerOf(object *v1alpha1.EnergyLedger, policy *v1alpha1.EnergyPolicy) bool {
	return slices.ContainsFunc(object.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == policy.UID })
}

// store writes what is known of a policy, if it is not stored already. It returns whether
// it is.
func (k *ledgerKeeper) store(ctx context.Context, policy string, home *ledgerHome) bool {
	k.mu.Lock()
	home.decided = time.Time{} // what is decided from now on may not be in it
	k.mu.Unlock()
	for range mostConflicts {
		status, known := k.content(policy)
		if !known {
			return false
		}
		if sumOf(&status) == home.stored {
			return k.sayStored(home, nil)
		}
		err := k.write(ctx, policy, home, status)
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return k.sayStored(home, err)
		}
		if !k.rebase(ctx, policy, home) {
			return false
		}
	}
	return k.sayStored(home, errors.New("somebody else writes it at the same time"))
}

// content is what an EnergyLedger is to hold. False: the policy is gone.
func (k *ledgerKeeper) content(policy string) (v1alpha1.EnergyLedgerStatus, bool) {
	status := v1alpha1.EnergyLedgerStatus{StoredAt: metav1.NewTime(k.clock.Now())}
	known := k.memory.View(policy, func(p *proof.Proofs, l *ledger.Ledger) {
		status.Ledger, status.Proofs = l.Save(), p.Save()
		if measured := p.Evidence(k.Version); len(measured.Entries()) > 0 {
			status.Evidence = string(evidence.Export(measured))
		}
	})
	if len(status.Evidence) > mostEvidence {
		status.Evidence = "" // it can be told anew from the proofs, which matter more
	}
	return status, known
}

// sizeOf is the size of a status in JSON.
func sizeOf(status *v1alpha1.EnergyLedgerStatus) int {
	return base64.StdEncoding.EncodedLen(len(status.Ledger)) + base64.StdEncoding.EncodedLen(len(status.Proofs)) + len(status.Evidence)
}

// sumOf tells contents apart, whenever they were stored.
func sumOf(status *v1alpha1.EnergyLedgerStatus) [32]byte {
	sum := sha256.New()
	for _, part := range [][]byte{status.Ledger, status.Proofs, []byte(status.Evidence)} {
		_, _ = sum.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part)))) // a hash takes all
		_, _ = sum.Write(part)
	}
	return [32]byte(sum.Sum(nil))
}

func (k *ledgerKeeper) write(ctx context.Context, policy string, home *ledgerHome, status v1alpha1.EnergyLedgerStatus) error {
	if size := sizeOf(&status); size > mostStored {
		return tooLarge(size)
	}
	object := &v1alpha1.EnergyLedger{
		ObjectMeta: metav1.ObjectMeta{Name: policy, ResourceVersion: home.version}, Status: status,
	}
	if err := k.writer.Status().Update(ctx, object); err != nil {
		return err
	}
	k.memory.Stored(policy)
	home.version, home.stored = object.ResourceVersion, sumOf(&status)
	return nil
}

// rebase puts what somebody else stored under what is known here. An EnergyLedger that was
// deleted is made anew: what the manager knows it still knows.
func (k *ledgerKeeper) rebase(ctx context.Context, policy string, home *ledgerHome) bool {
	owner := &v1alpha1.EnergyPolicy{ObjectMeta: metav1.ObjectMeta{Name: policy, UID: home.uid}}
	object, err := k.found(ctx, owner)
	if err != nil {
		return k.sayStored(home, err)
	}
	var refused *metav1.Condition
	if !isLedgerOf(object, owner) {
		refused = unreadable(v1alpha1.ReasonLedgerOfAnother, "EnergyLedger %s belongs to another policy by now: see its ownerReferences. %s", policy, keptInMind)
	} else if err := k.memory.Rebase(policy, object.Status.Ledger, object.Status.Proofs); err != nil {
		refused = unreadableBytes(policy, keptInMind, err)
	}
	if refused != nil {
		k.say(home, func(word *ledgerWord) { word.readable = refused })
		return k.sayStored(home, errors.New("what the EnergyLedger holds is not written over: see condition LedgerReadable"))
	}
	home.version, home.stored = object.ResourceVersion, [32]byte{}
	return true
}

// tooLarge is the size of a status that no object holds.
type tooLarge int

func (t tooLarge) Error() string {
	return fmt.Sprintf("%d bytes are more than the %d that an object holds: divide the policy's nodes among several policies by spec.nodeSelector", int(t), mostStored)
}

// sayStored tells in the condition how storing went, and returns whether it did.
func (k *ledgerKeeper) sayStored(home *ledgerHome, err error) bool {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionLedgerStored, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonLedgerStored,
		Message: "what is booked and decided is stored, each ten minutes and after decisions",
	}
	if err != nil {
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonLedgerNotWritten
		condition.Message = cut(fmt.Sprintf("a manager that takes over would not know what was booked and decided since the last time: %v", err), maxConditionMessage)
		if large := tooLarge(0); errors.As(err, &large) {
			condition.Reason = v1alpha1.ReasonLedgerTooLarge
		}
	}
	k.say(home, func(word *ledgerWord) {
		word.stored = &condition
		if err == nil {
			word.readable = readableLedger() // also when it was not for a while
		}
	})
	return err == nil
}

func readableLedger() *metav1.Condition {
	return &metav1.Condition{
		Type: v1alpha1.ConditionLedgerReadable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonLedgerRead,
		Message: "what was booked and decided before is known",
	}
}

func unreadable(reason, format string, args ...any) *metav1.Condition {
	return &metav1.Condition{
		Type: v1alpha1.ConditionLedgerReadable, Status: metav1.ConditionFalse, Reason: reason,
		Message: cut(fmt.Sprintf(format, args...), maxConditionMessage),
	}
}

func unreadableBytes(policy, meanwhile string, err error) *metav1.Condition {
	return unreadable(v1alpha1.ReasonLedgerUnreadable, "EnergyLedger %s holds what this manager cannot read: %v: "+
		"it was edited, or written by a newer manager. Put that manager back, or save the object and delete it: "+
		"kubectl get energyledger %s -o yaml > ledger.yaml && kubectl delete energyledger %s. %s", policy, err, policy, policy, meanwhile)
}

// say changes what the status says of a home.
func (k *ledgerKeeper) say(home *ledgerHome, change func(*ledgerWord)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(&home.word)
}

func (k *ledgerKeeper) wordOf(home *ledgerHome) ledgerWord {
	k.mu.Lock()
	defer k.mu.Unlock()
	return home.word
}

func (w ledgerWord) equal(other ledgerWord) bool {
	same := func(x, y *metav1.Condition) bool { return x == y || x != nil && y != nil && *x == *y }
	return same(w.readable, other.readable) && same(w.stored, other.stored) && same(w.evidence, other.evidence)
}

// tell makes an Event, and a line in the log, of an EnergyLedger that cannot be read.
func (k *ledgerKeeper) tell(policy *v1alpha1.EnergyPolicy, before, now *metav1.Condition) {
	if now == nil || now.Status != metav1.ConditionFalse || before != nil && before.Reason == now.Reason {
		return
	}
	k.log.Info("what was booked and decided before is not known", "EnergyPolicy", policy.Name, "reason", now.Reason, "message", now.Message)
	if now.Reason == v1alpha1.ReasonLedgerUnreadable {
		k.recorder.Eventf(policy, nil, corev1.EventTypeWarning, now.Reason, "Load", "%s", now.Message)
	}
}
