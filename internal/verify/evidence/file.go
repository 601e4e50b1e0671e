package evidence

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify"
)

// What a file says that it is.
const (
	APIVersion = "joulevirt.io/v1alpha1"
	Kind       = "Evidence"
)

const (
	// mostBytes and mostEntries bound what is read of a file.
	mostBytes   = 1 << 20
	mostEntries = 2048
	dateLayout  = "2006-01-02"
	confidence  = 0.95
)

// entryFile is an entry as it is written. Fields that are nil were not there.
type entryFile struct {
	Lever        *string   `json:"lever"`
	CPUModel     *string   `json:"cpuModel"`
	Kernel       *string   `json:"kernel"`
	Idle         *string   `json:"idle"`
	Clocks       *string   `json:"clocks"`
	Workload     *string   `json:"workload"`
	SavedPercent *float64  `json:"savedPercent"`
	Interval     []float64 `json:"interval95Percent"`
	Log          *float64  `json:"log"`
	StdErr       *float64  `json:"stdErr"`
	Freedom      *float64  `json:"freedom"`
	Between      *float64  `json:"between"`
	Units        *int      `json:"units"`
	Pairs        *int      `json:"pairs"`
	From         *string   `json:"from"`
	Until        *string   `json:"until"`
	Version      *string   `json:"version"`
}

// file is the entry as it is written, without what is there for readers only.
func (e Entry) file() *entryFile {
	from, until := e.From.Format(dateLayout), e.Until.Format(dateLayout)
	return &entryFile{
		Lever: (*string)(&e.Lever), CPUModel: &e.Class.CPUModel, Kernel: &e.Class.Kernel, Idle: &e.Class.Idle, Clocks: &e.Class.Clocks, Workload: &e.Class.Workload,
		Log: &e.Mean.Log, StdErr: &e.Mean.StdErr, Freedom: &e.Mean.Freedom, Between: &e.Between,
		Units: &e.Mean.Units, Pairs: &e.Mean.Pairs, From: &from, Until: &until, Version: &e.Version,
	}
}

// field of an entry as it is written.
type field struct{ name, value string }

// fields of an entry in the order of files.
func (e *Entry) fields() []field {
	low, high := percents(e.Mean)
	return []field{
		{"lever", string(e.Lever)},
		{"cpuModel", quoted(e.Class.CPUModel)},
		{"kernel", quoted(e.Class.Kernel)},
		{"idle", quoted(e.Class.Idle)},
		{"clocks", quoted(e.Class.Clocks)},
		{"workload", quoted(e.Class.Workload)},
		{"savedPercent", number(percent(e.Mean.Log))},
		{"interval95Percent", "[" + number(low) + ", " + number(high) + "]"},
		{"log", number(e.Mean.Log)},
		{"stdErr", number(e.Mean.StdErr)},
		{"freedom", number(e.Mean.Freedom)},
		{"between", number(e.Between)},
		{"units", strconv.Itoa(e.Mean.Units)},
		{"pairs", strconv.Itoa(e.Mean.Pairs)},
		{"from", quoted(e.From.Format(dateLayout))},
		{"until", quoted(e.Until.Format(dateLayout))},
		{"version", quoted(e.Version)},
	}
}

func fieldNames() (names []string) {
	for _, f := range new(Entry).fields() {
		names = append(names, f.name)
	}
	return names
}

// Export writes the evidence as YAML, one field a line, always in the same order.
func Export(e Evidence) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "apiVersion: %s\nkind: %s\n", APIVersion, Kind)
	if len(e.entries) == 0 {
		out.WriteString("entries: []\n")
		return out.Bytes()
	}
	out.WriteString("entries:\n")
	for i := range e.entries {
		mark := "-"
		for _, f := range e.entries[i].fields() {
			fmt.Fprintf(&out, "%s %s: %s\n", mark, f.name, f.value)
			mark = " "
		}
	}
	return out.Bytes()
}

// percents are the ends of the interval of what an effect saves.
func percents(mean verify.Effect) (low, high float64) {
	least, most := mean.Interval(confidence)
	return percent(most), percent(least)
}

// quoted is a text as YAML has it: in quotes, as JSON.
func quoted(text string) string {
	out, err := json.Marshal(text)
	if err != nil {
		return `""`
	}
	return string(out)
}

func number(value float64) string { return strconv.FormatFloat(value, 'f', -1, 64) }

// Import reads a file of evidence, given with its name. What is wrong with it is told all
// at once, by file, entry and field; a file with an error is refused as a whole.
func Import(name string, data []byte) (Evidence, error) {
	if len(data) > mostBytes {
		return Evidence{}, fmt.Errorf("%s: %d bytes are more than the %d of a file of evidence: split it", name, len(data), mostBytes)
	}
	var file struct {
		APIVersion string
		Kind       string
		Entries    []json.RawMessage
	}
	object, err := strictly(data)
	if err != nil {
		return Evidence{}, fmt.Errorf("%s: is not YAML as of %s: %w", name, Kind, err)
	}
	if err := known(object, []string{"apiVersion", "kind", "entries"}); err != nil {
		return Evidence{}, fmt.Errorf("%s: %w", name, err)
	}
	if err := json.Unmarshal(object, &file); err != nil {
		return Evidence{}, fmt.Errorf("%s: %w", name, typeError(err))
	}
	if file.APIVersion != APIVersion || file.Kind != Kind {
		return Evidence{}, fmt.Errorf("%s: is apiVersion %q, kind %q: evidence is apiVersion %s, kind %s",
			name, file.APIVersion, file.Kind, APIVersion, Kind)
	}
	if len(file.Entries) > mostEntries {
		return Evidence{}, fmt.Errorf("%s: entries: %d are more than %d: split the file", name, len(file.Entries), mostEntries)
	}
	var out Evidence
	var errs []error
	for i, raw := range file.Entries {
		entry, err := readEntry(raw)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: entries[%d]: %w", name, i, err))
			continue
		}
		if _, twice := out.find(entry.Lever, entry.Class); twice {
			errs = append(errs, fmt.Errorf("%s: entries[%d]: lever %s is there twice for %s: remove one", name, i, entry.Lever, entry.Class))
			continue
		}
		if out, err = out.Put(entry); err != nil {
			errs = append(errs, fmt.Errorf("%s: entries[%d]: %w", name, i, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Evidence{}, err
	}
	return out, nil
}

// strictly turns YAML into JSON. A field that is there twice is an error.
func strictly(data []byte) ([]byte, error) { return yaml.YAMLToJSONStrict(data) }

// known refuses fields of an object that are not among the names, which are told apart by
// case too.
func known(object []byte, names []string) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(object, &fields); err != nil {
		return errors.New("must be an object with the fields " + strings.Join(names, ", "))
	}
	var strange []string
	for field := range fields {
		if !slices.Contains(names, field) {
			strange = append(strange, fmt.Sprintf("%.64q", field))
		}
	}
	if len(strange) == 0 {
		return nil
	}
	slices.Sort(strange)
	return fmt.Errorf("unknown fields %.512s: remove them, or import with the version that wrote them; known are %s",
		strings.Join(strange, ", "), strings.Join(names, ", "))
}

// typeError names the field of which the type is wrong.
func typeError(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return fmt.Errorf("%s: is a %s: write a %s", wrong.Field, wrong.Value, wrong.Type)
	}
	return err
}

func readEntry(raw json.RawMessage) (Entry, error) {
	if err := known(raw, fieldNames()); err != nil {
		return Entry{}, err
	}
	var f entryFile
	if err := json.Unmarshal(raw, &f); err != nil {
		return Entry{}, typeError(err)
	}
	if f.Clocks == nil {
		// Versions before told nothing of clocks: those of such a file are not known.
		f.Clocks = new(string)
	}
	if err := f.check(); err != nil {
		return Entry{}, err
	}
	from, _ := time.Parse(dateLayout, *f.From)
	until, _ := time.Parse(dateLayout, *f.Until)
	return Entry{
		Lever: model.Lever(*f.Lever),
		Class: verify.Class{CPUModel: *f.CPUModel, Kernel: *f.Kernel, Idle: *f.Idle, Clocks: *f.Clocks, Workload: *f.Workload},
		Mean: verify.Effect{
			Log: *f.Log, StdErr: *f.StdErr, Freedom: *f.Freedom, Units: *f.Units, Pairs: *f.Pairs,
		},
		Between: *f.Between, From: from, Until: until, Version: *f.Version,
	}, nil
}
