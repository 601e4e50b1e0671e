package observe

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

// mostWithdrawnMessage is the API's bound of what is said of a withdrawal.
const mostWithdrawnMessage = 256

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
		bounded := of.Alert != "" || !of.Until.IsZero() && of.Until.Sub(of.Time) <= model.LongestCoolDown
		ends := of.Until.IsZero() || !of.Until.Before(of.Time)
		if !bounded || !ends || of.Time.IsZero() || of.Count < 0 {
			continue
		}
		out = append(out, of)
	}
	slices.SortStableFunc(out, model.Withdrawal.Compare)
	return slices.CompactFunc(out, func(x, y model.Withdrawal) bool { return x.Compare(y) == 0 })
}

// withdrawnLevers writes withdrawals as the API holds them: times are cut to seconds.
func withdrawnLevers(withdrawals []model.Withdrawal) []v1alpha1.WithdrawnLever {
	var out []v1alpha1.WithdrawnLever
	for i := range withdrawals[:min(len(withdrawals), model.MostWithdrawn)] {
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
