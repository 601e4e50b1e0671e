package container

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadyLine(t *testing.T) {
	tests := map[string]struct {
		reported error
		want     string
	}{
		"ready":                    {nil, ""},
		"failure":                  {errors.New("mount proc: denied"), "mount proc: denied"},
		"failure of several lines": {errors.New("first\nsecond"), "first second"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			reader, writer, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close()
			report(writer, test.reported)
			got := ""
			if err := AwaitReady(reader); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got the error %q, want %q", got, test.want)
			}
		})
	}
	if err := AwaitReady(strings.NewReader("")); err == nil {
		t.Error("a launcher that ended silently counts as ready")
	}
}

func TestSend(t *testing.T) {
	want := Spec{Hostname: "pod", Root: "/r", Binds: []Bind{{Source: "/a", Target: "/b", ReadOnly: true}}, LauncherArgs: []string{"--name", "x"}}
	var wire strings.Builder
	if err := want.Send(&wire); err != nil {
		t.Fatal(err)
	}
	var got Spec
	if err := json.Unmarshal([]byte(wire.String()), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the specification changed on its way (-want +got):\n%s", diff)
	}
}
