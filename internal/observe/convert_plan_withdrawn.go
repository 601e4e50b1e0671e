package observe

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

// The API's bounds of withdrawals and of what is said of each.
const (
	mostWithdrawn        = 256
	mostWithdrawnMessage = 256
)

// withdrawals leaves out what no manager writes.
func withdrawals(levers []v1alpha1.WithdrawnLever) []model.Withdrawal {
	var out []model.Withdrawal
	for i := range levers {
		w := &levers[i]
		of := model.Withdrawal{
			PodUID: string(w.PodUID), Lever: model.Lever(w.Lever), Sign: model.GuardSign(w.Sign), Alert: w.Alert,
			Time: w.Time.UTC(), Count: int(w.Count), Message: w.Message,
		}
		if w.Until != nil {
			of.Until = w.Until.UTC()
		}
		lasts := !of.Until.IsZero() && !of.Until.Before(of.Time) && of.Until.Sub(of.Time) <= model.LongestCoolDown
		if !lasts && (of.Alert == "" || !of.Until.IsZero()) || of.Time.IsZero() || of.Count < 0 {
			continue
		}
		out = append(out, of)
	}
	slices.SortStableFunc(out, compareWithdrawals)
	return slices.CompactFunc(out, func(x, y model.Withdrawal) bool { return compareWithdrawals(x, y) == 0 })
}

func compareWithdrawals(x, y model.Withdrawal) int {
	return cmp.Or(strings.Compare(x.PodUID, y.PodUID), strings.Compare(string(x.Lever), string(y.Lever)))
}

// withdrawnLevers writes withdrawals as the API holds them: times are cut to seconds.
func withdrawnLevers(withdrawals []model.Withdrawal) []v1alpha1.WithdrawnLever {
	var out []v1alpha1.WithdrawnLever
	for i := range withdrawals[:min(len(withdrawals), mostWithdrawn)] {
		w := &withdrawals[i]
		of := v1alpha1.WithdrawnLever{
			PodUID: types.UID(w.PodUID), Lever: v1alpha1.Lever(w.Lever), Sign: v1alpha1.GuardSign(w.Sign), Alert: w.Alert,
			Time: metav1.Time{Time: w.Time.Truncate(time.Second)}, Count: int32(w.Count),
			Message: strings.ToValidUTF8(w.Message[:min(len(w.Message), mostWithdrawnMessage)], ""),
		}
		if !w.Until.IsZero() {
			of.Until = &metav1.Time{Time: w.Until.Truncate(time.Second)}
		}
		out = append(out, of)
	}
	return out
}
