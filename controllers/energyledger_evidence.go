package controllers

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/verify/evidence"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// defaultEvidenceKey is the API's own default.
const defaultEvidenceKey = "evidence.yaml"

// evidenceImports is what was read of the evidence that a policy names.
type evidenceImports struct {
	generation int64
	due        time.Time
	// files are the last good ones. One that was broken or taken away since still counts,
	// for levers act by it; one that is named no longer does not.
	files map[v1alpha1.EvidenceReference]evidence.Evidence
	// given is what the proofs were given.
	given []byte
}

// lookAtEvidence reads the evidence that a policy names, when it is due or the policy was
// changed.
func (k *ledgerKeeper) lookAtEvidence(ctx context.Context, policy *v1alpha1.EnergyPolicy, home *ledgerHome) {
	imports, now := &home.imports, k.clock.Now()
	if imports.generation == policy.Generation && now.Before(imports.due) {
		return
	}
	imports.generation, imports.due = policy.Generation, now.Add(k.Read)
	references := policy.Spec.Verification.Evidence
	files := make(map[v1alpha1.EvidenceReference]evidence.Evidence, len(references))
	var wrong []error
	for _, reference := range references {
		file, err := k.readEvidence(ctx, reference)
		if err != nil {
			wrong = append(wrong, err)
			file = imports.files[reference]
		}
		files[reference] = file
	}
	if errors.Is(errors.Join(wrong...), errUnread) {
		imports.due = now.Add(min(ledgerRetry, k.Read))
	}
	imports.files = files
	condition := evidenceImported(files, wrong)
	k.say(home, func(word *ledgerWord) { word.evidence = condition })
	if home.loaded {
		k.giveEvidence(policy.Name, home)
	}
}

// giveEvidence gives the proofs what was read, if that is not what they have.
func (k *ledgerKeeper) giveEvidence(policy string, home *ledgerHome) {
	all := joined(home.imports.files)
	text := evidence.Export(all)
	if bytes.Equal(text, home.imports.given) {
		return
	}
	home.imports.given = text
	k.memory.View(policy, func(p *proof.Proofs, _ *ledger.Ledger) { p.Import(all) })
}

// joined is the evidence of all files. Of one lever and class that several tell about, the
// one that was measured last counts, and of those that which is from more pairs of blocks.
func joined(files map[v1alpha1.EvidenceReference]evidence.Evidence) evidence.Evidence {
	type key struct{ lever, class string }
	best := map[key]evidence.Entry{}
	for _, file := range files {
		for _, entry := range file.Entries() {
			at := key{string(entry.Lever), entry.Class.String()}
			if was, found := best[at]; !found || newer(entry, was) {
				best[at] = entry
			}
		}
	}
	var all evidence.Evidence
	for _, entry := range best {
		if with, err := all.Put(entry); err == nil { // it came from a file, so one can hold it
			all = with
		}
	}
	return all
}

func newer(a, b evidence.Entry) bool {
	order := cmp.Or(a.Until.Compare(b.Until), cmp.Compare(a.Mean.Pairs, b.Mean.Pairs), cmp.Compare(a.Mean.StdErr, b.Mean.StdErr), cmp.Compare(a.Mean.Log, b.Mean.Log))
	return order > 0
}

// errMissing is of evidence that is not where the policy says, errUnread of what the API
// server did not tell.
var (
	errMissing = errors.New("it is missing")
	errUnread  = errors.New("it was not read, and is tried again")
)

func (k *ledgerKeeper) readEvidence(ctx context.Context, reference v1alpha1.EvidenceReference) (evidence.Evidence, error) {
	key := cmp.Or(reference.Key, defaultEvidenceKey)
	name := fmt.Sprintf("ConfigMap %s/%s key %s", k.Namespace, reference.Name, key)
	var object corev1.ConfigMap
	err := k.live.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: reference.Name}, &object)
	if apierrors.IsNotFound(err) {
		return evidence.Evidence{}, fmt.Errorf("%s: %w: create it, or correct spec.verification.evidence", name, errMissing)
	}
	if err != nil {
		return evidence.Evidence{}, fmt.Errorf("%s: %w: %w", name, errUnread, err)
	}
	text, found := object.Data[key]
	if !found {
		return evidence.Evidence{}, fmt.Errorf("%s: the ConfigMap has no such key: %w: add it, or correct spec.verification.evidence", name, errMissing)
	}
	return evidence.Import(name, []byte(text))
}

// evidenceImported tells how reading evidence went. Nil: the policy names none.
func evidenceImported(files map[v1alpha1.EvidenceReference]evidence.Evidence, wrong []error) *metav1.Condition {
	if len(files) == 0 {
		return nil
	}
	condition := &metav1.Condition{
		Type: v1alpha1.ConditionEvidenceImported, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonEvidenceImported,
		Message: fmt.Sprintf("%d entries are taken from %d files", len(joined(files).Entries()), len(files)),
	}
	if len(wrong) == 0 {
		return condition
	}
	condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonEvidenceInvalid
	if errors.Is(wrong[0], errMissing) {
		condition.Reason = v1alpha1.ReasonEvidenceMissing
	}
	words := make([]string, 0, len(wrong))
	for _, err := range wrong {
		words = append(words, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	condition.Message = cut(fmt.Sprintf("%d of %d files of evidence were not taken, and what was read of them before still counts: %s",
		len(wrong), len(files), strings.Join(words, "; ")), maxConditionMessage)
	return condition
}
