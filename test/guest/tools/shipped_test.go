package tools

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// shipped is the folder of what owners of VMs get.
const shipped = "../../../guest"

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(shipped, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// parse decodes YAML of a file, whose fields must all be known.
func parse(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}

func TestCloudInitHasTheUnitAndTheInstaller(t *testing.T) {
	text := read(t, "cloud-init.yaml")
	if !strings.HasPrefix(text, "#cloud-config\n") {
		t.Error("cloud-init takes no user data without #cloud-config")
	}
	var config struct {
		WriteFiles []struct{ Path, Permissions, Content string } `json:"write_files"`
		Mounts     [][]string                                    `json:"mounts"`
		RunCommand [][]string                                    `json:"runcmd"`
	}
	parse(t, text, &config)
	want := map[string]string{
		"/etc/systemd/system/joulevirt-guest.service": read(t, "joulevirt-guest.service"),
		"/usr/local/sbin/joulevirt-guest-install":     read(t, "install.sh"),
	}
	got := map[string]string{}
	for _, file := range config.WriteFiles {
		got[file.Path] = file.Content
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-of guest/ +of cloud-init.yaml):\n%s", diff)
	}
	if len(config.RunCommand) != 1 || config.RunCommand[0][0] != config.WriteFiles[1].Path || config.WriteFiles[1].Permissions != "0755" {
		t.Errorf("it runs %v", config.RunCommand)
	}
}

func TestUnit(t *testing.T) {
	root := t.TempDir()
	for path, mode := range map[string]os.FileMode{"usr/local/bin/joulevirt-guest": 0o755, "etc/systemd/system/joulevirt-guest.service": 0o644} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(read(t, "joulevirt-guest.service")), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, target := range []string{"sysinit.target", "basic.target", "multi-user.target", "shutdown.target", "system.slice"} {
		if err := os.WriteFile(filepath.Join(root, "etc/systemd/system", target), []byte("[Unit]\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", "--root="+root, "joulevirt-guest.service").CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	// 10 is a service that may do everything.
	out, err = exec.Command("systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold=35",
		filepath.Join(shipped, "joulevirt-guest.service")).CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze security: %v\n%s", err, out)
	}
}

func TestInstaller(t *testing.T) {
	const program = "#!/bin/sh\n"
	sum := sha256.Sum256([]byte(program))
	good := hex.EncodeToString(sum[:])
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(path))))
	defer server.Close()
	for _, test := range []struct {
		name, source, sum string
		installed         bool
	}{
		{"a path", path, good, true},
		{"an address", server.URL + "/program", good, true},
		{"another sum", path, strings.Repeat("0", 64), false},
		{"no sum", path, "", false},
		{"nothing there", path + "x", good, false},
		{"an address with nothing", server.URL + "/x", good, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			cmd := exec.Command("sh", filepath.Join(shipped, "install.sh"), test.source, test.sum)
			cmd.Env = append(os.Environ(), "DESTDIR="+root)
			out, err := cmd.CombinedOutput()
			if (err == nil) != test.installed {
				t.Errorf("%v\n%s", err, out)
			}
			files, err := os.ReadDir(filepath.Join(root, "usr/local/bin"))
			if err != nil {
				t.Fatal(err)
			}
			if !test.installed {
				if len(files) > 0 {
					t.Errorf("it leaves %v", files)
				}
				return
			}
			info, err := os.Stat(filepath.Join(root, "usr/local/bin/joulevirt-guest"))
			if err != nil || info.Mode() != 0o755 || len(files) != 1 {
				t.Errorf("%v, %v, %v", info, err, files)
			}
		})
	}
}

func TestExamples(t *testing.T) {
	secret, vm, _ := strings.Cut(read(t, "vm.yaml"), "\n---\n")
	parse(t, secret, &corev1.Secret{})
	var withTools kubevirtv1.VirtualMachine
	parse(t, vm, &withTools)
}
