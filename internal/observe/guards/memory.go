package guards

import (
	"fmt"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
)

const (
	// several VMs, and one of fewVMs on which the lever acts, from which it was withdrawn
	// within shortly, tell that it hurts on the node.
	several = 3
	fewVMs  = 4
	shortly = 5 * time.Minute
	// lingers is how long what is forgotten is known to be, for plans that still name it.
	lingers = 10 * time.Minute
)

// key names a lever of a VM, or of all VMs of the node, or of the group, when podUID is
// empty.
type key struct {
	podUID string
	lever  model.Lever
}

// keyOf a withdrawal: shares are those of all members, whichever of them was hurt.
func keyOf(w *model.Withdrawal) key {
	if w.Lever == model.LeverTrafficShare {
		return key{"", w.Lever}
	}
	return key{w.PodUID, w.Lever}
}

// entry is a withdrawal that is remembered.
type entry struct {
	model.Withdrawal
	// alerts that it lasts for, and since when each is gone: zero for one that is there.
	alerts map[string]time.Time
	// after is how the VM is without the lever, by the level that was broken.
	after trial
}

// remembered tells whether a plan is to name the withdrawal.
func (e *entry) remembered(now time.Time) bool {
	return e.Lasts(now) || model.Remembered(e.Count, now.Sub(e.Until)) > 0
}

// node is what is remembered of a node, or of a group.
type node map[key]*entry

// withdraw a lever, and tell whether that is new.
func (n node) withdraw(k key, f *finding, now time.Time) bool {
	before := n[k]
	if before != nil && before.Lasts(now) {
		return false
	}
	e := n.begin(k, now, before)
	e.Sign, e.Message = f.sign, f.evidence
	if f.verdict == doubtful {
		e.Count = 0 // it is withdrawn to see how it is without
	}
	e.Until = now.Add(model.CoolDown(e.Count)).Truncate(time.Second)
	return true
}

// begin a withdrawal, counting those before that are remembered.
func (n node) begin(k key, now time.Time, before *entry) *entry {
	e := &entry{Withdrawal: model.Withdrawal{PodUID: k.podUID, Lever: k.lever, Time: now.Truncate(time.Second), Count: 1}}
	if before != nil {
		e.Count = min(model.MostRemembered, 1+model.Remembered(before.Count, now.Sub(before.Until)))
	}
	n[k] = e
	return e
}

// trial is the first pulls of a VM after a lever was withdrawn from it for a service level.
type trial struct{ pulls, nearly int }

// helped tells whether a withdrawal is known to have: the level was near its limit in none of
// the pulls after. Guests and alerts are not looked at again.
func (e *entry) helped() bool {
	return !isLevel(e.Sign) || e.after.pulls == window && e.after.nearly == 0
}

// without takes in what a pull shows of a VM without some levers. Where one was withdrawn and
// the level is as broken without, nothing speaks against the lever. It tells whether that is
// new.
func (n node) without(podUID string, reads []without, now time.Time) bool {
	news := false
	for _, r := range reads {
		e := n[key{podUID, r.lever}]
		if e == nil || e.Sign != r.sign || !e.Lasts(now) || e.after.pulls == window {
			continue
		}
		e.after.pulls++
		e.after.nearly += int(bit(r.nearly))
		if e.after.pulls < window || e.after.nearly < most || e.Count == 0 {
			continue
		}
		e.Count--
		e.Message += "; but it is as bad without"
		if soon := e.Time.Add(model.CoolDown(1)); soon.Before(e.Until) {
			e.Until = soon
		}
		news = true
	}
	return news
}

// holds tells whether a lever is withdrawn from a VM, or from all of the node's.
func (n node) holds(k key, now time.Time) bool {
	for _, k := range []key{k, {"", k.lever}} {
		if e := n[k]; e != nil && e.Lasts(now) {
			return true
		}
	}
	return false
}

// any tells whether a lever is withdrawn from some VM of the node.
func (n node) any(lever model.Lever, now time.Time) bool {
	for k, e := range n {
		if k.lever == lever && e.Lasts(now) {
			return true
		}
	}
	return false
}

// together withdraws a lever from all VMs of the node when several of those that it acts on
// lost it shortly, after the node did last, and that helped: loads that rise together break
// levels of several at once, whatever acts on them.
func (n node) together(lever model.Lever, acts int, now time.Time) bool {
	whole := n[key{"", lever}]
	count := 0
	for k, e := range n {
		again := whole != nil && e.Time.Before(whole.Until)
		if k.podUID != "" && k.lever == lever && e.Count > 0 && e.helped() && e.Lasts(now) && now.Sub(e.Time) <= shortly && !again {
			count++
		}
	}
	if count < several || fewVMs*count < acts+count {
		return false
	}
	evidence := fmt.Sprintf("it was withdrawn from %d VMs within %v, of %d on which it acted", count, shortly, acts+count)
	return n.withdraw(key{"", lever}, &finding{lever: lever, sign: n.commonest(lever, now), verdict: hurts, evidence: evidence}, now)
}

// commonest sign of a lever's withdrawals.
func (n node) commonest(lever model.Lever, now time.Time) model.GuardSign {
	counts := map[model.GuardSign]int{}
	var most model.GuardSign
	for k, e := range n {
		if k.podUID == "" || k.lever != lever || !e.Lasts(now) {
			continue
		}
		counts[e.Sign]++
		if counts[e.Sign] > counts[most] || counts[e.Sign] == counts[most] && e.Sign < most {
			most = e.Sign
		}
	}
	return most
}

// adopt takes over what a plan remembers and the node does not, as after a change of leader.
func (n node) adopt(w *model.Withdrawal, now time.Time) {
	k := keyOf(w)
	if known := n[k]; known != nil && !known.Time.Before(w.Time) {
		return
	}
	e := &entry{Withdrawal: *w}
	if e.Until.IsZero() {
		// Whether the alert is still there is not known yet.
		e.alerts = map[string]time.Time{w.Alert: {}}
	}
	if w.Time.After(now.Add(lingers)) || w.Until.After(now.Add(model.LongestCoolDown)) || !e.remembered(now) {
		return // no manager left that
	}
	n[k] = e
}

// tell returns what plans are to hold, in order: what lasts first where there is too much,
// and a lever that is withdrawn from so many VMs that not all can be named from the node.
func (n node) tell(now time.Time) []model.Withdrawal {
	var lasting, past []model.Withdrawal
	for _, e := range n {
		switch {
		case e.Lasts(now):
			lasting = append(lasting, e.Withdrawal)
		case e.remembered(now):
			past = append(past, e.Withdrawal)
		}
	}
	slices.SortFunc(lasting, model.Withdrawal.Compare)
	for _, lever := range model.NodeLevers() {
		if len(lasting) > model.MostWithdrawn {
			lasting = fold(lasting, lever)
		}
	}
	// The newest of those that are over.
	slices.SortFunc(past, func(x, y model.Withdrawal) int {
		if c := y.Time.Compare(x.Time); c != 0 {
			return c
		}
		return x.Compare(y)
	})
	all := append(lasting, past[:min(len(past), model.MostWithdrawn-len(lasting))]...)
	slices.SortFunc(all, model.Withdrawal.Compare)
	return slices.CompactFunc(all, func(x, y model.Withdrawal) bool { return x.Compare(y) == 0 })
}

// fold withdraws a lever from the node in place of all of its VMs, as long as the longest.
func fold(lasting []model.Withdrawal, lever model.Lever) []model.Withdrawal {
	var whole *model.Withdrawal
	count := 0
	rest := slices.DeleteFunc(lasting, func(w model.Withdrawal) bool {
		if w.Lever != lever {
			return false
		}
		count++
		if whole == nil || !whole.Until.IsZero() && (w.Until.IsZero() || w.Until.After(whole.Until)) {
			whole = &w
		}
		return true
	})
	if whole == nil {
		return rest
	}
	whole.PodUID = ""
	whole.Message = fmt.Sprintf("it is withdrawn from %d VMs of the node, more than a plan names; of one: %s", count, whole.Message)
	return append(rest, *whole)
}

// sweep forgets what is over, some time after plans ceased to name it.
func (n node) sweep(now time.Time) {
	for k, e := range n {
		if !e.remembered(now) && !e.remembered(now.Add(-lingers)) {
			delete(n, k)
		}
	}
}
