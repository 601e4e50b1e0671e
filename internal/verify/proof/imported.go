package proof

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/evidence"
)

// Evidence is what was measured here, without what was imported, marked with the version
// of the product.
func (p *Proofs) Evidence(version string) evidence.Evidence {
	var all evidence.Evidence
	for _, at := range p.places() {
		f := p.fields[at]
		pooled := p.pool(poolKey{at.lever, at.class})
		if at.alone != "" || !pooled.Mean.IsKnown() || f.from.IsZero() {
			continue
		}
		until := f.seen
		if until.Before(f.from) {
			until = f.from
		}
		next, err := all.Put(evidence.Entry{
			Lever: at.lever, Class: at.class, Mean: pooled.Mean, Between: pooled.Between, From: f.from, Until: until, Version: version,
		})
		// What no file can hold, such as a class whose name is too long, stays here.
		if err == nil {
			all = next
		}
	}
	return all
}

// Import sets the evidence of other clusters, in place of what was imported before. It is
// not stored: import it anew after Load. Entries that were dropped here stay dropped while
// they are the same.
func (p *Proofs) Import(e evidence.Evidence) {
	p.imported = evidence.Evidence{}
	for _, entry := range e.Entries() {
		if _, dropped := slices.BinarySearch(p.dropped, identity(&entry)); dropped {
			continue
		}
		// It was checked when it was put in before.
		if next, err := p.imported.Put(entry); err == nil {
			p.imported = next
		}
	}
}

// identity of an entry, by which one that was dropped is known again.
func identity(e *evidence.Entry) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %s %v %v %v %d", e.Lever, e.Class, e.Mean.Log, e.Mean.StdErr, e.Between, e.Until.Unix())
	return h.Sum64()
}

// believe adopts levers that were not tried here and that evidence shows to save on units
// of the class, whichever these are.
func (p *Proofs) believe(s Settings, now time.Time) []News {
	var news []News
	for _, at := range p.places() {
		f := p.fields[at]
		if at.alone != "" || f.decision != "" || f.trial != nil || f.again {
			continue
		}
		prior := p.prior(at.lever, at.class)
		effect := prior.Unit(verify.Effect{}).Effect()
		low, high := effect.Interval(s.Confidence)
		if !effect.IsKnown() || high >= 0 {
			continue
		}
		f.verdict = verdict{
			decision: verify.Adopted, imported: true, seen: now, decided: now, rejections: f.rejections,
			found: prior.Mean, log: effect.Log, low: low, high: high, units: prior.Mean.Units,
			message: "by imported evidence it " + saved(effect.Log, low, high),
		}
		news = append(news, News{
			Kind: Adopted, Lever: at.lever, Class: at.class, Message: fmt.Sprintf("%s without a trial: %s", at.lever, f.message),
		})
	}
	return news
}

// checkEvidence holds what was imported against what was measured here.
func (p *Proofs) checkEvidence(at place, measured verify.Effect, now time.Time) []News {
	if at.alone != "" {
		return nil
	}
	var entry evidence.Entry
	for _, e := range p.imported.Entries() {
		if e.Lever == at.lever && e.Class == at.class {
			entry = e
		}
	}
	next, dropped := p.imported.Check(at.lever, at.class, measured)
	if !dropped {
		return nil
	}
	p.imported = next
	id := identity(&entry)
	if i, found := slices.BinarySearch(p.dropped, id); !found {
		p.dropped = slices.Insert(p.dropped, i, id)
	}
	f := p.field(at)
	_, high := measured.Interval(plain)
	if f.imported && high >= 0 {
		f.verdict = verdict{rejections: f.rejections, seen: now}
	} else if f.imported {
		f.found, f.imported = measured, false
	}
	low, high := measured.Interval(plain)
	return []News{{
		Kind: EvidenceDropped, Lever: at.lever, Class: at.class,
		Message: fmt.Sprintf("imported evidence of %s says %.2f %% and is dropped: here it %s",
			at.lever, 100*math.Expm1(entry.Mean.Log), saved(measured.Log, low, high)),
	}}
}
