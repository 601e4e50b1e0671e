package prometheus

import (
	"errors"
	"io"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/prometheus/common/model"

	"github.com/joulevirt/joulevirt/internal/energy"
)

// Bounds of an answer. What a server has is also what those expose whom it scrapes.
const (
	// mostBytes of an answer, unpacked: it is decoded while it is read.
	mostBytes = 64 << 20
	// mostSeries of an answer: psys and two sockets of 5,000 nodes, of which some have just
	// started anew.
	mostSeries = 16_000
	// mostMemory is what may be kept of an answer: of each of 16,000 series 2 KB, which are 12
	// labels and 48 samples.
	mostMemory = 32 << 20
	// mostSamples of a series are those that Prometheus itself evaluates at most.
	mostSamples = 11_000
	// mostText is the largest token: the decoder reads more at once only for larger ones.
	mostText = 1 << 20
	// Memory of a series, of a label beside its texts, and of a sample in a list that grows.
	seriesMemory, labelMemory, sampleMemory = 160, 64, 24
)

// answer is what a server said.
type answer struct {
	status, errorType, message string
	kind                       string
	matrix                     model.Matrix
	vector                     model.Vector
	// parts of a scalar or text.
	parts int
	// warning is the first of the server's.
	warning string
}

// value returns nil for a type that the API does not have.
func (a *answer) value() model.Value {
	matrix, vector := len(a.matrix) > 0, len(a.vector) > 0
	switch {
	case a.kind == model.ValMatrix.String() && !vector && a.parts == 0:
		return a.matrix
	case a.kind == model.ValVector.String() && !matrix && a.parts == 0:
		return a.vector
	case a.kind == model.ValScalar.String() && !matrix && !vector:
		return &model.Scalar{}
	case a.kind == model.ValString.String() && !matrix && !vector:
		return &model.String{}
	}
	return nil
}

// errNoAnswer is an answer that no Prometheus server gives.
var errNoAnswer = errors.New("not an answer of the API of Prometheus")

// decodeAnswer reads an answer within the bounds above. An error is a Refusal, that of the
// reader, or errNoAnswer.
func decodeAnswer(body io.Reader) (*answer, error) {
	in := &bounded{reader: body, left: mostBytes}
	d := decoder{
		Decoder: jsontext.NewDecoder(in, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)),
		memory:  mostMemory,
	}
	err := d.object(d.member)
	if err == nil {
		if _, err = d.ReadToken(); err == nil {
			err = errNoAnswer
		} else if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	switch {
	case in.failed != nil:
		return nil, in.failed
	case energy.RefusalIn(err) != nil:
		return nil, err
	case err != nil:
		return nil, errNoAnswer
	}
	return &d.answer, nil
}

// decoder reads an answer token by token: no more of it than the bounds is ever in memory.
type decoder struct {
	*jsontext.Decoder
	answer answer
	// memory that is left for what is kept.
	memory int
	series int
}

// object calls member with the name of each member, whose value it has to read.
func (d *decoder) object(member func(name string) error) error {
	return d.within('{', '}', func() error {
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		return member(name.String())
	})
}

// within calls each until the list or object ends.
func (d *decoder) within(open, end jsontext.Kind, each func() error) error {
	token, err := d.ReadToken()
	if err != nil {
		return err
	}
	if token.Kind() != open {
		return errNoAnswer
	}
	for d.PeekKind() != end {
		if err := each(); err != nil {
			return err
		}
	}
	_, err = d.ReadToken()
	return err
}

func (d *decoder) list(each func() error) error { return d.within('[', ']', each) }

func (d *decoder) text(into *string) error {
	token, err := d.ReadToken()
	if err == nil && token.Kind() == '"' {
		*into = token.String()
	}
	return err
}

func (d *decoder) member(name string) error {
	switch {
	case name == "status":
		return d.text(&d.answer.status)
	case name == "errorType":
		return d.text(&d.answer.errorType)
	case name == "error":
		return d.text(&d.answer.message)
	case name == "data" && d.PeekKind() == '{':
		return d.object(d.data)
	case name == "warnings" && d.PeekKind() == '[':
		return d.list(func() error {
			if d.answer.warning != "" {
				return d.SkipValue()
			}
			return d.text(&d.answer.warning)
		})
	}
	return d.SkipValue()
}

func (d *decoder) data(name string) error {
	switch {
	case name == "resultType":
		return d.text(&d.answer.kind)
	case name == "result" && d.PeekKind() == '[':
		return d.list(d.element)
	}
	return d.SkipValue()
}

// element reads a series, a sample, or a part of a scalar.
func (d *decoder) element() error {
	if d.series++; d.series > mostSeries {
		return energy.Refuse(energy.ReasonQueryFailed, "the server answers with more than %d series: narrow them down with matchers or query", mostSeries)
	}
	if d.PeekKind() != '{' {
		d.answer.parts++
		return d.SkipValue()
	}
	if err := d.keep(seriesMemory); err != nil {
		return err
	}
	var stream model.SampleStream
	var sample *model.Sample
	metric := model.Metric{}
	err := d.object(func(name string) error {
		switch name {
		case "metric":
			return d.labels(metric)
		case "values":
			return d.list(func() error {
				if len(stream.Values) == mostSamples {
					return energy.Refuse(energy.ReasonQueryFailed, "the server answers with more than %d samples of a series: scrape less often", mostSamples)
				}
				pair, err := d.pair()
				stream.Values = append(stream.Values, pair)
				return err
			})
		case "value":
			pair, err := d.pair()
			sample = &model.Sample{Metric: metric, Timestamp: pair.Timestamp, Value: pair.Value}
			return err
		case "histogram":
			sample = &model.Sample{Metric: metric, Histogram: &model.SampleHistogram{}}
		case "histograms":
			stream.Histograms = []model.SampleHistogramPair{{}}
		}
		return d.SkipValue()
	})
	if stream.Metric = metric; sample != nil {
		d.answer.vector = append(d.answer.vector, sample)
	} else {
		d.answer.matrix = append(d.answer.matrix, &stream)
	}
	return err
}

// labels reads those of a series.
func (d *decoder) labels(into model.Metric) error {
	return d.object(func(name string) error {
		var value string
		if err := d.text(&value); err != nil {
			return err
		}
		into[model.LabelName(name)] = model.LabelValue(value)
		return d.keep(labelMemory + len(name) + len(value))
	})
}

// pair reads a time in seconds and a value, which is a text: it may be infinite.
func (d *decoder) pair() (model.SamplePair, error) {
	var pair model.SamplePair
	at := 0
	err := d.list(func() error {
		token, err := d.ReadToken()
		if err != nil {
			return err
		}
		switch at++; {
		case at == 1 && token.Kind() == '0':
			pair.Timestamp = model.Time(math.Round(token.Float() * 1000))
		case at == 2 && token.Kind() == '"':
			value, err := strconv.ParseFloat(token.String(), 64)
			pair.Value = model.SampleValue(value)
			return err
		default:
			return errNoAnswer
		}
		return nil
	})
	if err == nil && at != 2 {
		err = errNoAnswer
	}
	return pair, errors.Join(err, d.keep(sampleMemory))
}

func (d *decoder) keep(memory int) error {
	if d.memory -= memory; d.memory < 0 {
		return energy.Refuse(energy.ReasonQueryFailed, "the answer needs more than %d MiB of memory: narrow it down with matchers or query, or scrape less often", mostMemory>>20)
	}
	return nil
}

// bounded reads so much, then fails, and remembers why.
type bounded struct {
	reader io.Reader
	left   int
	failed error
}

func (b *bounded) Read(into []byte) (int, error) {
	if len(into) > mostText {
		b.failed = energy.Refuse(energy.ReasonQueryFailed, "the answer has a text of more than %d KiB", mostText>>10)
		return 0, b.failed
	}
	n, err := b.reader.Read(into)
	switch b.left -= n; {
	case b.left < 0:
		b.failed = energy.Refuse(energy.ReasonQueryFailed, "the answer is larger than %d MiB: narrow it down with matchers or query, or scrape less often", mostBytes>>20)
	case err != nil && !errors.Is(err, io.EOF):
		b.failed = err
	}
	if b.failed != nil {
		return 0, b.failed
	}
	return n, err
}
