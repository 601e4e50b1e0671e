package trials

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/statuses"
)

// +kubebuilder:rbac:groups=joulevirt.io,resources=energyledgers,verbs=get;create;patch
// +kubebuilder:rbac:groups=joulevirt.io,resources=energyledgers/status,verbs=update

const (
	// mostStored of an EnergyLedger, as JSON has it: etcd takes 1.5 MiB by default.
	mostStored = 1 << 20
)

// nothingBooked is what happens while an EnergyLedger cannot be read.
const nothingBooked = "Until then what is in force stays, no trial starts and nothing is booked"

// load begins a policy with what is stored of it. It returns whether that is done.
func (k *LedgerKeeper) load(ctx context.Context, policy *v1alpha1.EnergyPolicy, home *ledgerHome) bool {
	refused := k.read(ctx, policy, home)
	if refused != nil {
		k.report(home, *refused)
		k.settle(home, false)
		return false
	}
	k.report(home, storedLedger())
	home.loaded = true
	return true
}

// read returns why what is stored of a policy is not known. Nil: it is.
func (k *LedgerKeeper) read(ctx context.Context, policy *v1alpha1.EnergyPolicy, home *ledgerHome) *metav1.Condition {
	object, err := k.found(ctx, policy)
	if meta.IsNoMatchError(err) {
		return unreadable(v1alpha1.ReasonAwaitingLedger, "kind EnergyLedger is missing: apply Joulevirt's CRDs of this version: "+
			"kubectl apply --server-side -k config/crd. %s", nothingBooked)
	}
	if err != nil {
		return unreadable(v1alpha1.ReasonAwaitingLedger, "EnergyLedger %s was not read: %v: it is tried again. %s", policy.Name, err, nothingBooked)
	}
	if !isLedgerOf(object, policy) {
		return unreadable(v1alpha1.ReasonLedgerUnreadable, "EnergyLedger %s belongs to a policy of the same name that was deleted, and should go with it soon: "+
			"if it does not, kubectl delete energyledger %s. %s", policy.Name, policy.Name, nothingBooked)
	}
	if err := k.Memory.Load(policy.Name, object.Status.Memory); err != nil {
		return unreadableBytes(policy.Name, err)
	}
	home.version, home.stored = object.ResourceVersion, sha256.Sum256(object.Status.Memory)
	return nil
}

// found returns the policy's EnergyLedger, which is made when there is none. One that
// belongs to nobody, as it does when a policy was deleted and its dependents were not, is
// taken over.
func (k *LedgerKeeper) found(ctx context.Context, policy *v1alpha1.EnergyPolicy) (*v1alpha1.EnergyLedger, error) {
	object := &v1alpha1.EnergyLedger{}
	err := k.Live.Get(ctx, client.ObjectKey{Name: policy.Name}, object)
	switch {
	case apierrors.IsNotFound(err):
		object = newEnergyLedger(policy)
		if err := k.Writer.Create(ctx, object); err != nil {
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
	if err := k.Writer.Patch(ctx, object, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
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
func (k *LedgerKeeper) store(ctx context.Context, policy string, home *ledgerHome) bool {
	k.mu.Lock()
	home.decided = time.Time{} // what is decided from now on may not be in it
	k.mu.Unlock()
	stored, known, err := k.Memory.Save(policy)
	if !known {
		return false
	}
	if err == nil && sha256.Sum256(stored) == home.stored {
		return k.reportStored(home, nil)
	}
	if err == nil {
		err = k.write(ctx, policy, home, stored)
	}
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		// Another manager wrote, or somebody deleted it: what is stored counts.
		k.Memory.Forget(policy)
		home.loaded = false
		err = fmt.Errorf("somebody else changed it, and it is read again: %w", err)
	}
	return k.reportStored(home, err)
}

func (k *LedgerKeeper) write(ctx context.Context, policy string, home *ledgerHome, stored []byte) error {
	if size := base64.StdEncoding.EncodedLen(len(stored)); size > mostStored {
		return tooLarge(size)
	}
	object := &v1alpha1.EnergyLedger{
		ObjectMeta: metav1.ObjectMeta{Name: policy, ResourceVersion: home.version},
		Status:     v1alpha1.EnergyLedgerStatus{Memory: stored},
	}
	if err := k.Writer.Status().Update(ctx, object); err != nil {
		return err
	}
	home.version, home.stored = object.ResourceVersion, sha256.Sum256(stored)
	return nil
}

// tooLarge is the size of a status that no object holds.
type tooLarge int

func (t tooLarge) Error() string {
	return fmt.Sprintf("%d bytes are more than the %d that an object holds: divide the policy's nodes among several policies by spec.nodeSelector", int(t), mostStored)
}

// reportStored tells in the condition how storing went, and returns whether it did.
func (k *LedgerKeeper) reportStored(home *ledgerHome, err error) bool {
	condition := storedLedger()
	if err != nil {
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonLedgerNotWritten
		condition.Message = statuses.Cut(fmt.Sprintf("a manager that takes over would not know what was booked and decided since the last time: %v", err), statuses.MaxConditionMessage)
	}
	k.report(home, condition)
	return err == nil
}

func storedLedger() metav1.Condition {
	return metav1.Condition{
		Type: v1alpha1.ConditionLedgerStored, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonLedgerStored,
		Message: "what is booked and decided is stored, each ten minutes and after decisions",
	}
}

func unreadable(reason, format string, args ...any) *metav1.Condition {
	return &metav1.Condition{
		Type: v1alpha1.ConditionLedgerStored, Status: metav1.ConditionFalse, Reason: reason,
		Message: statuses.Cut(fmt.Sprintf(format, args...), statuses.MaxConditionMessage),
	}
}

func unreadableBytes(policy string, err error) *metav1.Condition {
	return unreadable(v1alpha1.ReasonLedgerUnreadable, "EnergyLedger %s holds what this manager cannot read: %v: "+
		"it was edited, or written by a newer manager. Put that manager back, or save the object and delete it: "+
		"kubectl get energyledger %s -o yaml > ledger.yaml && kubectl delete energyledger %s. %s", policy, err, policy, policy, nothingBooked)
}

// report changes what the status says of a home.
func (k *LedgerKeeper) report(home *ledgerHome, condition metav1.Condition) {
	k.mu.Lock()
	defer k.mu.Unlock()
	home.reported = condition
}

func (k *LedgerKeeper) reported(home *ledgerHome) metav1.Condition {
	k.mu.Lock()
	defer k.mu.Unlock()
	return home.reported
}

// tell makes an Event, and a line in the log, of an EnergyLedger that cannot be read.
func (k *LedgerKeeper) tell(policy *v1alpha1.EnergyPolicy, before, now metav1.Condition) {
	if now.Reason != v1alpha1.ReasonAwaitingLedger && now.Reason != v1alpha1.ReasonLedgerUnreadable || before.Reason == now.Reason {
		return
	}
	k.Log.Info("what was booked and decided before is not known", "EnergyPolicy", policy.Name, "reason", now.Reason, "message", now.Message)
	if now.Reason == v1alpha1.ReasonLedgerUnreadable {
		k.Recorder.Eventf(policy, nil, corev1.EventTypeWarning, now.Reason, "Load", "%s", now.Message)
	}
}
