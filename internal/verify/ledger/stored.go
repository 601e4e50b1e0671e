package ledger

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/verify"
)

// The types below are the JSON form of a Ledger.
type (
	storedLedger struct {
		Causes   map[Cause]int64 `json:"causes,omitempty"`
		Sums     []storedSum     `json:"sums,omitempty"`
		Accounts []storedAccount `json:"accounts,omitempty"`
	}
	storedSum struct {
		Month    Month                   `json:"month,omitempty"`
		Lever    v1alpha1.Lever          `json:"lever,omitempty"`
		Modelled bool                    `json:"modelled,omitempty"`
		Seconds  float64                 `json:"seconds"`
		Joules   float64                 `json:"joules"`
		Bytes    float64                 `json:"bytes"`
		Saved    float64                 `json:"saved"`
		Own      verify.ErrorSum         `json:"own,omitzero"`
		Common   map[string]storedCommon `json:"common,omitempty"`
		Chance   storedChance            `json:"chance,omitzero"`
	}
	storedCommon struct {
		Joules  float64 `json:"joules"`
		Freedom float64 `json:"freedom"`
	}
	storedChance struct {
		Variance float64 `json:"variance"`
		Unsure   float64 `json:"unsure"`
	}
	storedAccount struct {
		Node  string         `json:"node,omitempty"`
		Lever v1alpha1.Lever `json:"lever,omitempty"`
		// Free are the stretches that are not booked, each as its begin and end.
		Free  [][2]uint32       `json:"free,omitempty"`
		Last  float32           `json:"last,omitempty"`
		Saved [2]*storedNodeSum `json:"saved"`
	}
	storedNodeSum struct {
		Saved         float64       `json:"saved"`
		Own           float32       `json:"own,omitempty"`
		Common        float32       `json:"common,omitempty"`
		OwnFreedom    float32       `json:"ownFreedom,omitempty"`
		CommonFreedom float32       `json:"commonFreedom,omitempty"`
		Chance        storedChance  `json:"chance,omitzero"`
		Months        [2]storedTime `json:"months,omitzero"`
	}
	storedTime struct {
		Month Month   `json:"month"`
		Own   float32 `json:"own"`
	}
)

// MarshalJSON returns the ledger as JSON, the same for the same content.
func (l *Ledger) MarshalJSON() ([]byte, error) {
	out := storedLedger{Causes: l.state.causes}
	for _, key := range slices.SortedFunc(maps.Keys(l.state.sums), compareSums) {
		out.Sums = append(out.Sums, storeSum(key, l.state.sums[key]))
	}
	for _, key := range slices.SortedFunc(maps.Keys(l.state.accounts), compareAccounts) {
		out.Accounts = append(out.Accounts, storeAccount(key, l.state.accounts[key]))
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (l *Ledger) UnmarshalJSON(data []byte) error {
	var stored storedLedger
	if err := json.Unmarshal(data, &stored); err != nil {
		return err
	}
	*l = *New()
	maps.Copy(l.state.causes, stored.Causes)
	for i := range stored.Sums {
		s := &stored.Sums[i]
		l.state.sums[sumKey{s.Month, s.Lever, s.Modelled}] = s.load()
	}
	for i := range stored.Accounts {
		s := &stored.Accounts[i]
		l.state.accounts[accountKey{s.Node, s.Lever}] = s.load()
	}
	return nil
}

func compareSums(a, b sumKey) int {
	return cmp.Or(cmp.Compare(a.month, b.month), cmp.Compare(a.lever, b.lever), cmp.Compare(index(a.modelled), index(b.modelled)))
}

func compareAccounts(a, b accountKey) int {
	return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.lever, b.lever))
}

func storeSum(key sumKey, s *sum) storedSum {
	out := storedSum{
		Month: key.month, Lever: key.lever, Modelled: key.modelled,
		Seconds: s.seconds, Joules: s.joules, Bytes: s.bytes, Saved: s.saved, Own: s.own, Chance: storeChance(s.chance),
	}
	for class, e := range s.common {
		if out.Common == nil {
			out.Common = map[string]storedCommon{}
		}
		out.Common[class] = storedCommon{Joules: e.joules, Freedom: e.freedom}
	}
	return out
}

func (s *storedSum) load() *sum {
	out := &sum{seconds: s.Seconds, joules: s.Joules, bytes: s.Bytes, saved: s.Saved, own: s.Own, chance: s.Chance.load()}
	for class, e := range s.Common {
		if out.common == nil {
			out.common = map[string]commonError{}
		}
		out.common[class] = commonError{joules: e.Joules, freedom: e.Freedom}
	}
	return out
}

func storeChance(c chance) storedChance {
	return storedChance{Variance: c.variance, Unsure: c.unsure}
}

func (s storedChance) load() chance { return chance{variance: s.Variance, unsure: s.Unsure} }

func storeAccount(key accountKey, a *account) storedAccount {
	out := storedAccount{Node: key.node, Lever: key.lever, Last: a.last}
	for _, s := range a.window.free {
		out.Free = append(out.Free, [2]uint32{s.from, s.to})
	}
	for i := range a.saved {
		n := &a.saved[i]
		if *n == (nodeSum{}) {
			continue
		}
		out.Saved[i] = &storedNodeSum{
			Saved: n.saved, Own: n.own, Common: n.common, OwnFreedom: n.ownFreedom, CommonFreedom: n.commonFreedom, Chance: storeChance(n.chance),
			Months: [2]storedTime{{n.months[0].month, n.months[0].own}, {n.months[1].month, n.months[1].own}},
		}
	}
	return out
}

func (s *storedAccount) load() *account {
	a := &account{last: s.Last}
	for _, free := range s.Free {
		a.window.taken, a.window.free = true, append(a.window.free, stretch{free[0], free[1]})
	}
	for i, n := range s.Saved {
		if n == nil {
			continue
		}
		a.saved[i] = nodeSum{
			saved: n.Saved, own: n.Own, common: n.Common, ownFreedom: n.OwnFreedom, commonFreedom: n.CommonFreedom, chance: n.Chance.load(),
			months: [2]monthSum{{n.Months[0].Month, n.Months[0].Own}, {n.Months[1].Month, n.Months[1].Own}},
		}
	}
	return a
}
