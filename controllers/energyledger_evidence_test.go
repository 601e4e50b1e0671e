package controllers

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/verify/evidence"
)

const evidenceOfBuffering = `apiVersion: joulevirt.io/v1alpha1
kind: Evidence
entries:
- lever: Buffering
  cpuModel: "Xeon"
  kernel: "6.12"
  idle: ""
  workload: "Interactive"
  log: -0.05
  stdErr: 0.004
  freedom: 11
  between: 0.01
  units: 12
  pairs: 240
  from: "2026-03-01"
  until: "2026-03-20"
  version: "v0.7.0"
`

func evidenceMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "joulevirt-system", Name: name}, Data: data}
}

func TestEvidenceIsImported(t *testing.T) {
	policy := ledgerPolicy("p", "1")
	policy.Spec.Verification.Evidence = []v1alpha1.EvidenceReference{{Name: "a"}, {Name: "b", Key: "other"}}
	berlin := evidenceMap("a", map[string]string{"evidence.yaml": evidenceOfBuffering})
	s := newKeeping(t, policy, berlin)
	k := s.manager()
	imported := func() int { return len(joined(k.home(policy).imports.files).Entries()) }
	check := func(what, condition string, entries int, words ...string) {
		t.Helper()
		all := s.says(k, ledgerIsRead, ledgerIsStored, condition)
		for _, word := range words {
			if !strings.Contains(all, word) {
				t.Errorf("%s: no %q in %s", what, word, all)
			}
		}
		if got := imported(); got != entries {
			t.Errorf("%s: %d entries, want %d", what, got, entries)
		}
	}
	s.after(0, k)
	check("one file of two", "EvidenceImported=False EvidenceMissing", 1, "1 of 2 files", "joulevirt-system/b key other", "create it")

	// A file with another key, then one with what no evidence is.
	other := evidenceMap("b", map[string]string{"evidence.yaml": evidenceOfBuffering})
	s.must(s.client.Create(t.Context(), other))
	s.after(time.Minute, k)
	check("not looked at yet", "EvidenceImported=False EvidenceMissing", 1, "create it")
	s.after(5*time.Minute, k)
	check("no such key", "EvidenceImported=False EvidenceMissing", 1, "no such key")
	other.Data["other"] = strings.Replace(evidenceOfBuffering, "stdErr: 0.004", "stdErr: none", 1)
	s.must(s.client.Update(t.Context(), other))
	s.after(5*time.Minute, k)
	check("a broken file", "EvidenceImported=False EvidenceInvalid", 1, "entries[0]", "stdErr")
	other.Data["other"] = strings.NewReplacer("Interactive", "Throughput").Replace(evidenceOfBuffering)
	s.must(s.client.Update(t.Context(), other))
	s.after(5*time.Minute, k)
	check("both files", "EvidenceImported=True EvidenceImported", 2, "2 entries are taken from 2 files")

	// What was taken away still counts, until the policy names it no longer.
	s.must(s.client.Delete(t.Context(), berlin))
	s.after(5*time.Minute, k)
	check("a file taken away", "EvidenceImported=False EvidenceMissing", 2, "still counts")
	s.must(s.client.Get(t.Context(), client.ObjectKeyFromObject(policy), policy))
	policy.Generation, policy.Spec.Verification.Evidence = 2, nil
	s.must(s.client.Update(t.Context(), policy))
	s.after(time.Second, k)
	s.says(k, ledgerIsRead, ledgerIsStored)
	if imported() != 0 {
		t.Error("evidence that nobody names counts")
	}
}

// unreadMaps does not tell of ConfigMaps.
type unreadMaps struct{ client.Reader }

func (r unreadMaps) Get(ctx context.Context, key client.ObjectKey, object client.Object, o ...client.GetOption) error {
	if _, is := object.(*corev1.ConfigMap); is {
		return errors.New("the API server is busy")
	}
	return r.Reader.Get(ctx, key, object, o...)
}

// A new leader has none of an earlier one's evidence: what it could not read it asks for
// soon.
func TestEvidenceThatWasNotRead(t *testing.T) {
	policy := ledgerPolicy("p", "1")
	policy.Spec.Verification.Evidence = []v1alpha1.EvidenceReference{{Name: "a"}}
	s := newKeeping(t, policy, evidenceMap("a", map[string]string{"evidence.yaml": evidenceOfBuffering}))
	k := s.manager()
	there := k.live
	k.live = unreadMaps{there}
	s.after(0, k)
	if words := s.says(k, ledgerIsRead, ledgerIsStored, "EvidenceImported=False EvidenceInvalid"); !strings.Contains(words, "tried again: the API server is busy") {
		t.Errorf("messages: %s", words)
	}
	k.live = there
	s.after(time.Minute, k)
	s.says(k, ledgerIsRead, ledgerIsStored, "EvidenceImported=True EvidenceImported")
}

// Of two files that tell of one lever and class the later counts, whatever their order.
func TestEvidenceOfSeveralFiles(t *testing.T) {
	read := func(text string) evidence.Evidence {
		file, err := evidence.Import("file", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	files := map[v1alpha1.EvidenceReference]evidence.Evidence{
		{Name: "a"}: read(strings.Replace(evidenceOfBuffering, "03-20", "03-21", 1)),
		{Name: "b"}: read(strings.Replace(evidenceOfBuffering, "-0.05", "-0.07", 1)),
		{Name: "c"}: read(strings.NewReplacer("-0.05", "-0.06", "pairs: 240", "pairs: 300", "03-20", "03-21").Replace(evidenceOfBuffering)),
	}
	entries := joined(files).Entries()
	if len(entries) != 1 || entries[0].Mean.Log != -0.06 {
		t.Errorf("joined to %+v, want the last day's of most pairs", entries)
	}
}
