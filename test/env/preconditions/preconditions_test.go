package preconditions

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	const problem, warning = "problem: ", "warning: "
	for name, c := range map[string]struct {
		change func(*Facts)
		want   string // the start of the only sentence
	}{
		"a machine that can":   {func(*Facts) {}, ""},
		"Debian 13":            {func(f *Facts) { f.Version = "13" }, ""},
		"exactly as much disk": {func(f *Facts) { f.FreeGB = 20 }, ""},
		"not root":             {func(f *Facts) { f.Root = false }, problem + "This user is not root: run it with sudo"},
		"little disk":          {func(f *Facts) { f.FreeGB = 19 }, problem + "The disk of /cache has 19 GB left, and 20 GB are needed: free some"},
		"no network":           {func(f *Facts) { f.Network = errors.New("no such host") }, problem + "Go modules cannot be downloaded (no such host): connect"},
		"little disk, built":   {func(f *Facts) { f.FreeGB, f.Built = 19, true }, warning + "The disk of /cache"},
		"no network, built":    {func(f *Facts) { f.Network, f.Built = errors.New("no such host"), true }, warning + "Go modules"},
		"not root, built":      {func(f *Facts) { f.Root, f.Built = false, true }, problem + "This user is not root"},
		"Debian 11":            {func(f *Facts) { f.Version = "11" }, warning + "debian 11 is unknown, only Debian 12 and 13 were tried"},
		"Ubuntu":               {func(f *Facts) { f.ID, f.Version, f.Like = "ubuntu", "24.04", "debian" }, warning + "ubuntu 24.04 is unknown"},
		"another distribution": {func(f *Facts) { f.ID, f.Version, f.Like = "fedora", "43", "" }, problem + "fedora 43 has no packages of Debian: use Debian 12 or 13"},
	} {
		t.Run(name, func(t *testing.T) {
			f := Facts{Root: true, Cache: "/cache", FreeGB: 100, ID: "debian", Version: "12"}
			c.change(&f)
			var got []string
			problems, warnings := Check(f, 20)
			for _, sentence := range problems {
				got = append(got, problem+sentence)
			}
			for _, sentence := range warnings {
				got = append(got, warning+sentence)
			}
			if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], c.want)) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if problems, _ := Check(Facts{Network: errors.New("no route to host"), ID: "arch"}, 20); len(problems) != 4 {
		t.Errorf("a machine that lacks all has the problems %q, want four", problems)
	}
}

func TestField(t *testing.T) {
	const text = "PRETTY_NAME=\"Ubuntu 24.04 LTS\"\nVERSION_ID=\"24.04\"\nID=ubuntu\nID_LIKE=\"debian other\"\n"
	got := []string{field(text, "ID"), field(text, "VERSION_ID"), field(text, "ID_LIKE"), field(text, "VARIANT")}
	if want := []string{"ubuntu", "24.04", "debian other", ""}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
