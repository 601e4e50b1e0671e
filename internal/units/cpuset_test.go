package units

import (
	"strings"
	"testing"
)

func TestParseCPUSet(t *testing.T) {
	for _, tc := range []struct {
		text, want, wantErr string
		size                int
	}{
		{text: "", want: ""},
		{text: "0\n", want: "0", size: 1},
		{text: "0-3,8,10-11", want: "0-3,8,10-11", size: 7},
		{text: "3,2,1,0", want: "0-3", size: 4},
		{text: "63-64,128", want: "63-64,128", size: 3},
		{text: "1-200,64-127,0", want: "0-200", size: 201},
		{text: "0-8191", want: "0-8191", size: 8192},
		{text: "8191", want: "8191", size: 1},
		{text: "8192", wantErr: "above the largest, 8191"},
		{text: "0-4294967295", wantErr: "above the largest"},
		{text: "0-99999999999999999999", wantErr: "not a CPU number"},
		{text: "5-2", wantErr: "ends before it starts"},
		{text: "a", wantErr: "not a CPU number"},
		{text: "-1", wantErr: "not a CPU number"},
		{text: "1,,2", wantErr: "not a CPU number"},
	} {
		got, err := ParseCPUSet(tc.text)
		if tc.wantErr != "" {
			if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("ParseCPUSet(%q): error %v, want one with %q", tc.text, err, tc.wantErr)
			}
			continue
		}
		if err != nil || got.String() != tc.want || got.Len() != tc.size {
			t.Errorf("ParseCPUSet(%q) = %q of %d, %v; want %q of %d", tc.text, got, got.Len(), err, tc.want, tc.size)
		}
	}
}

func TestCPUSetOperations(t *testing.T) {
	a, b := NewCPUSet(0, 1, 70), NewCPUSet(1, 2)
	for name, tc := range map[string]struct{ got, want CPUSet }{
		"union":                   {a.Union(b), NewCPUSet(0, 1, 2, 70)},
		"intersection":            {a.Intersection(b), NewCPUSet(1)},
		"difference":              {a.Difference(b), NewCPUSet(0, 70)},
		"difference drops a word": {a.Difference(NewCPUSet(70)), NewCPUSet(0, 1)},
		"empty":                   {a.Difference(a), CPUSet{}},
		"out of range":            {NewCPUSet(-1, MaxCPUs), CPUSet{}},
	} {
		if !tc.got.Equal(tc.want) {
			t.Errorf("%s: %q, want %q", name, tc.got, tc.want)
		}
	}
	if !NewCPUSet(1).IsSubsetOf(a) || b.IsSubsetOf(a) || !(CPUSet{}).IsSubsetOf(b) {
		t.Error("IsSubsetOf is wrong")
	}
	if a.Contains(-1) || a.Contains(2) || !a.Contains(70) || a.Contains(100000) {
		t.Error("Contains is wrong")
	}
}
