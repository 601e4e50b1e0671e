package proof

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
)

// The types below are the JSON form of Proofs. Schedules are not stored: they are drawn again
// from their seeds.
type (
	storedProofs struct {
		Confidence float64       `json:"confidence"`
		Units      []storedUnit  `json:"units,omitempty"`
		Levers     []storedField `json:"levers,omitempty"`
		Ended      []storedTrial `json:"ended,omitempty"`
	}
	storedUnit struct {
		Name     string       `json:"name"`
		Class    verify.Class `json:"class"`
		Metered  bool         `json:"metered,omitempty"`
		Approved bool         `json:"approved,omitempty"`
		Seen     time.Time    `json:"seen"`
		Levers   []storedLot  `json:"levers,omitempty"`
	}
	storedLot struct {
		Lever   v1alpha1.Lever `json:"lever"`
		Drawn   int            `json:"drawn,omitempty"`
		Apart   bool           `json:"apart,omitempty"`
		Entry   entry          `json:"entry,omitempty"`
		Checked int            `json:"checked,omitempty"`
		// Held are the figures of the hold-back by their places; those that are 0 are left out.
		Held  map[int]float32 `json:"held,omitempty"`
		Hold  *storedHold     `json:"hold,omitempty"`
		Shown bool            `json:"shown,omitempty"`
		Open  []storedRun     `json:"open,omitempty"`
		Due   []storedRun     `json:"due,omitempty"`
	}
	storedHold struct {
		Drawn   int           `json:"drawn"`
		Start   time.Time     `json:"start"`
		Block   time.Duration `json:"blockNanoseconds"`
		WashOut time.Duration `json:"washOutNanoseconds"`
		Stratum int           `json:"stratum,omitempty"`
		Next    int           `json:"next,omitempty"`
	}
	storedBlock struct {
		Came    bool         `json:"came,omitempty"`
		Guarded bool         `json:"guarded,omitempty"`
		Cause   ledger.Cause `json:"cause,omitempty"`
		Seconds float32      `json:"seconds,omitempty"`
		Joules  float32      `json:"joules,omitempty"`
		Work    float32      `json:"work,omitempty"`
	}
	storedRun struct {
		From      time.Time `json:"from"`
		To        time.Time `json:"to"`
		On        bool      `json:"on,omitempty"`
		Basis     basis     `json:"basis,omitempty"`
		Log       float32   `json:"log,omitempty"`
		Precision float32   `json:"precision,omitempty"`
		Share     float32   `json:"share,omitempty"`
		storedBlock
	}
	storedPlace struct {
		Lever v1alpha1.Lever `json:"lever"`
		Class verify.Class   `json:"class"`
		Alone string         `json:"alone,omitempty"`
	}
	storedField struct {
		storedPlace
		Number     int             `json:"number,omitempty"`
		Ready      time.Time       `json:"ready,omitzero"`
		Decision   verify.Decision `json:"decision,omitempty"`
		From       time.Time       `json:"from,omitzero"`
		Seen       time.Time       `json:"seen,omitzero"`
		Decided    time.Time       `json:"decided,omitzero"`
		Until      time.Time       `json:"until,omitzero"`
		Rejections int             `json:"rejections,omitempty"`
		Found      *storedEffect   `json:"found,omitempty"`
		Log        figure          `json:"log,omitempty"`
		Low        figure          `json:"low,omitempty"`
		High       figure          `json:"high,omitempty"`
		Units      int             `json:"units,omitempty"`
		Pairs      int             `json:"pairs,omitempty"`
		Planned    int             `json:"planned,omitempty"`
		Message    string          `json:"message,omitempty"`
		Effects    []storedEffect  `json:"effects,omitempty"`
		Checked    int             `json:"checked,omitempty"`
		Again      bool            `json:"again,omitempty"`
		Trial      *storedTrial    `json:"trial,omitempty"`
	}
	storedEffect struct {
		Unit    string  `json:"unit,omitempty"`
		Log     float64 `json:"log"`
		StdErr  float64 `json:"stdErr"`
		Freedom figure  `json:"freedom"`
		Units   int     `json:"units"`
		Pairs   int     `json:"pairs"`
	}
	storedTrial struct {
		storedPlace
		Number     int            `json:"number"`
		Rest       bool           `json:"rest,omitempty"`
		Start      time.Time      `json:"start"`
		Block      time.Duration  `json:"blockNanoseconds"`
		WashOut    time.Duration  `json:"washOutNanoseconds"`
		Pairs      int            `json:"pairs"`
		Every      int            `json:"every"`
		Confidence float64        `json:"confidence"`
		Rejections int            `json:"rejections,omitempty"`
		Heard      time.Time      `json:"heard"`
		Over       int            `json:"over,omitempty"`
		Members    []storedMember `json:"members"`
	}
	storedMember struct {
		Unit   string         `json:"unit"`
		Drawn  int            `json:"drawn"`
		Nodes  []string       `json:"nodes,omitempty"`
		Left   bool           `json:"left,omitempty"`
		Before verify.Stretch `json:"before,omitzero"`
		Blocks []storedBlock  `json:"blocks"`
	}
)

// figure is a number that may be infinite, which JSON has no word for.
type figure float64

// MarshalJSON implements json.Marshaler.
func (f figure) MarshalJSON() ([]byte, error) {
	if math.IsInf(float64(f), 0) {
		return json.Marshal(strconv.FormatFloat(float64(f), 'g', -1, 64))
	}
	return json.Marshal(float64(f))
}

// UnmarshalJSON implements json.Unmarshaler.
func (f *figure) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) != nil {
		return json.Unmarshal(data, (*float64)(f))
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return fmt.Errorf("read a number: %w", err)
	}
	*f = figure(value)
	return nil
}

// MarshalJSON returns the proofs as JSON, the same for the same content.
func (p *Proofs) MarshalJSON() ([]byte, error) {
	out := storedProofs{Confidence: p.confidence}
	for _, name := range p.names() {
		u := p.units[name]
		stored := storedUnit{Name: name, Class: u.class, Metered: u.metered, Approved: u.approved, Seen: u.seen}
		for _, lever := range slices.Sorted(maps.Keys(u.lots)) {
			stored.Levers = append(stored.Levers, storeLot(lever, u.lots[lever]))
		}
		out.Units = append(out.Units, stored)
	}
	for _, at := range p.places() {
		out.Levers = append(out.Levers, storeField(at, p.fields[at]))
	}
	for _, t := range p.ended {
		out.Ended = append(out.Ended, storeTrial(t))
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (p *Proofs) UnmarshalJSON(data []byte) error {
	var stored storedProofs
	if err := json.Unmarshal(data, &stored); err != nil {
		return err
	}
	*p = *New()
	p.confidence = stored.Confidence
	for i := range stored.Units {
		s := &stored.Units[i]
		u := &unit{class: s.Class, metered: s.Metered, approved: s.Approved, seen: s.Seen, lots: map[v1alpha1.Lever]*lot{}}
		for j := range s.Levers {
			u.lots[s.Levers[j].Lever] = s.Levers[j].load()
		}
		p.units[s.Name] = u
	}
	for i := range stored.Levers {
		p.fields[stored.Levers[i].place()] = stored.Levers[i].load()
	}
	for i := range stored.Ended {
		p.ended = append(p.ended, stored.Ended[i].load())
	}
	return nil
}

func storeLot(lever v1alpha1.Lever, l *lot) storedLot {
	out := storedLot{
		Lever: lever, Drawn: l.drawn, Apart: l.apart, Entry: l.entry, Checked: l.checked, Held: map[int]float32{}, Shown: l.shown,
		Open: storeRuns(l.open), Due: storeRuns(l.due),
	}
	for i, f := range l.held.Figures() {
		if *f != 0 {
			out.Held[i] = *f
		}
	}
	if h := l.hold; h != nil {
		out.Hold = &storedHold{Drawn: h.drawn, Start: h.start, Block: h.block, WashOut: h.washOut, Stratum: h.stratum, Next: h.next}
	}
	return out
}

func (s *storedLot) load() *lot {
	l := &lot{
		drawn: s.Drawn, apart: s.Apart, entry: s.Entry, checked: s.Checked, shown: s.Shown, open: loadRuns(s.Open), due: loadRuns(s.Due),
	}
	for i, f := range l.held.Figures() {
		*f = s.Held[i]
	}
	if h := s.Hold; h != nil {
		l.hold = &hold{drawn: h.Drawn, start: h.Start, block: h.Block, washOut: h.WashOut, stratum: h.Stratum, next: h.Next}
	}
	return l
}

func storeRuns(runs []run) []storedRun {
	var out []storedRun
	for i := range runs {
		r := &runs[i]
		out = append(out, storedRun{
			From: r.from, To: r.to, On: r.on, Basis: r.basis, Log: r.log, Precision: r.precision, Share: r.share, storedBlock: storeBlock(r.told),
		})
	}
	return out
}

func loadRuns(stored []storedRun) []run {
	var out []run
	for i := range stored {
		s := &stored[i]
		out = append(out, run{
			from: s.From, to: s.To, on: s.On, basis: s.Basis, log: s.Log, precision: s.Precision, share: s.Share, told: s.load(),
		})
	}
	return out
}

func storeBlock(t told) storedBlock {
	return storedBlock{Came: t.came, Guarded: t.guarded, Cause: causes()[t.cause], Seconds: t.seconds, Joules: t.joules, Work: t.work}
}

// load a block. A cause that is not known counts as contradictory.
func (s storedBlock) load() told {
	cause := slices.Index(causes(), s.Cause)
	if cause < 0 {
		cause = slices.Index(causes(), ledger.Contradictory)
	}
	return told{came: s.Came, guarded: s.Guarded, cause: uint8(cause), seconds: s.Seconds, joules: s.Joules, work: s.Work}
}

func storePlace(at place) storedPlace {
	return storedPlace{Lever: at.lever, Class: at.class, Alone: at.alone}
}

func (s *storedPlace) place() place { return place{lever: s.Lever, class: s.Class, alone: s.Alone} }

func storeField(at place, f *field) storedField {
	out := storedField{
		storedPlace: storePlace(at), Number: f.number, Ready: f.ready, Decision: f.decision,
		From: f.from, Seen: f.seen, Decided: f.decided, Until: f.until, Rejections: f.rejections,
		Log: figure(f.log), Low: figure(f.low), High: figure(f.high),
		Units: f.units, Pairs: f.pairs, Planned: f.planned, Message: f.message, Checked: f.checked, Again: f.again,
	}
	if f.found != (verify.Effect{}) {
		found := storeEffect("", f.found)
		out.Found = &found
	}
	for _, e := range f.effects {
		out.Effects = append(out.Effects, storeEffect(e.Unit, e.Effect))
	}
	if f.trial != nil {
		t := storeTrial(f.trial)
		out.Trial = &t
	}
	return out
}

func (s *storedField) load() *field {
	f := &field{number: s.Number, ready: s.Ready, checked: s.Checked, again: s.Again}
	f.verdict = verdict{
		decision: s.Decision, from: s.From, seen: s.Seen, decided: s.Decided, until: s.Until, rejections: s.Rejections,
		log: float64(s.Log), low: float64(s.Low), high: float64(s.High), units: s.Units, pairs: s.Pairs, planned: s.Planned, message: s.Message,
	}
	if s.Found != nil {
		f.found = s.Found.load()
	}
	for i := range s.Effects {
		f.effects = append(f.effects, verify.UnitEffect{Unit: s.Effects[i].Unit, Effect: s.Effects[i].load()})
	}
	if s.Trial != nil {
		f.trial = s.Trial.load()
	}
	return f
}

func storeEffect(unit string, e verify.Effect) storedEffect {
	return storedEffect{Unit: unit, Log: e.Log, StdErr: e.StdErr, Freedom: figure(e.Freedom), Units: e.Units, Pairs: e.Pairs}
}

func (s *storedEffect) load() verify.Effect {
	return verify.Effect{Log: s.Log, StdErr: s.StdErr, Freedom: float64(s.Freedom), Units: s.Units, Pairs: s.Pairs}
}

func storeTrial(t *trial) storedTrial {
	out := storedTrial{
		storedPlace: storePlace(t.at), Number: t.number, Rest: t.rest, Start: t.start, Block: t.block, WashOut: t.washOut,
		Pairs: t.pairs, Every: t.every, Confidence: t.confidence, Rejections: t.rejections, Heard: t.heard, Over: t.over,
	}
	for i := range t.members {
		m := &t.members[i]
		member := storedMember{Unit: m.unit, Drawn: m.drawn, Nodes: m.nodes, Left: m.left, Before: m.before}
		for _, b := range m.blocks {
			member.Blocks = append(member.Blocks, storeBlock(b))
		}
		out.Members = append(out.Members, member)
	}
	return out
}

func (s *storedTrial) load() *trial {
	t := &trial{
		at: s.place(), number: s.Number, rest: s.Rest, start: s.Start, block: s.Block, washOut: s.WashOut,
		pairs: s.Pairs, every: s.Every, confidence: s.Confidence, rejections: s.Rejections, heard: s.Heard, over: s.Over,
	}
	for i := range s.Members {
		m := &s.Members[i]
		loaded := member{unit: m.Unit, drawn: m.Drawn, nodes: m.Nodes, left: m.Left, before: m.Before}
		for _, b := range m.Blocks {
			loaded.blocks = append(loaded.blocks, b.load())
		}
		t.members = append(t.members, loaded)
	}
	return t
}
