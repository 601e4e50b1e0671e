package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/findings"
	"github.com/joulevirt/joulevirt/internal/units"
)

// TestFindingsAreRanked by watts, CPU time and number, and each reason is one.
func TestFindingsAreRanked(t *testing.T) {
	on := func(reason, object string, watts float64, basis v1alpha1.Basis, cores units.Cores) findings.Found {
		f := findings.Found{Reason: reason, Object: object, Basis: basis, LostCores: cores, Message: object, Remedy: "r", ChangedBy: v1alpha1.FindingOwnerVMOwner}
		if watts > 0 {
			f.Watts = ptr.To(units.Watts(watts))
		}
		return f
	}
	got := rankFindings([]findings.Found{
		on("Few", "Node/a", 0, "", 0),
		on("Limit", "V/a", 0, "", 0.5), on("Limit", "V/b", 0, "", 1.04),
		on("Many", "Node/b", 0, "", 0), on("Many", "Node/a", 0, "", 0),
		on("Idle", "Node/small", 40, v1alpha1.BasisMeasured, 0), on("Idle", "Node/large", 101.4, v1alpha1.BasisMeasured, 0),
		on("Sleep", "Node/x", 200, v1alpha1.BasisMeasured, 0), on("Sleep", "Node/y", 20, v1alpha1.BasisModelled, 0), on("Sleep", "Node/z", 0, "", 0),
	})
	finding := func(reason string, watts *int64, basis v1alpha1.Basis, cores v1alpha1.Decimal, objects ...string) v1alpha1.Finding {
		return v1alpha1.Finding{
			Reason: reason, Count: int32(len(objects)), Objects: objects, Message: objects[0], Remedy: "r", ChangedBy: v1alpha1.FindingOwnerVMOwner,
			Watts: watts, Basis: basis, LostCores: cores,
		}
	}
	want := []v1alpha1.Finding{
		finding("Sleep", ptr.To[int64](220), v1alpha1.BasisModelled, "", "Node/x", "Node/y", "Node/z"),
		finding("Idle", ptr.To[int64](140), v1alpha1.BasisMeasured, "", "Node/large", "Node/small"),
		finding("Limit", nil, "", "1.5", "V/b", "V/a"),
		finding("Many", nil, "", "", "Node/a", "Node/b"),
		finding("Few", nil, "", "", "Node/a"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestFindingsFitTheAPI, however many objects there are and however long their words.
func TestFindingsFitTheAPI(t *testing.T) {
	var found []findings.Found
	for i := range 1000 {
		found = append(found, findings.Found{Reason: "R", Object: fmt.Sprint(i), Message: strings.Repeat("m", 600), Remedy: strings.Repeat("r", 600)})
	}
	got := rankFindings(found)
	if len(got) != 1 || got[0].Count != 1000 || len(got[0].Objects) != 10 || len(got[0].Message) != 512 || len(got[0].Remedy) != 512 {
		t.Errorf("%+v", got)
	}
	if got := rankFindings(nil); got != nil {
		t.Errorf("%+v of nothing", got)
	}
}
