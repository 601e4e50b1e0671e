//go:build e2e

// Package image builds the images of the shipped Dockerfile and checks
// them. Where no container engine runs, Debian's buildah builds them too.
package image

import (
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// maxProgram is far below what a node's registry cache would notice, and above
// what the Kubernetes client libraries make of any program.
const maxProgram = 80 << 20

func TestImages(t *testing.T) {
	b := newBuilder(t)
	for _, test := range []struct {
		target string
		config config
		uid    uint32
		embeds []string // of npm
	}{{
		target: "manager",
		config: config{User: "65532:65532", Entrypoint: []string{"/manager"}},
		uid:    65532,
		embeds: []string{"uplot"},
	}, {
		target: "agent",
		config: config{User: "0:0", Entrypoint: []string{"/agent"}},
	}} {
		t.Run(test.target, func(t *testing.T) {
			image := b.build(t, test.target)
			if diff := cmp.Diff(test.config, b.config(t, image)); diff != "" {
				t.Errorf("configuration, -want +got:\n%s", diff)
			}
			files := b.mount(t, image)
			checkOnlyFiles(t, files, test.target)
			checkBill(t, filepath.Join(files, "usr/share/sbom", test.target+".cdx.json"), filepath.Join(files, test.target), test.embeds)
			checkStatic(t, filepath.Join(files, test.target))
			checkRuns(t, files, test.uid, "/"+test.target, "--help")
		})
	}
}

// TestGatewayImage checks the image that has Debian's nginx.
func TestGatewayImage(t *testing.T) {
	b := newBuilder(t)
	b.debianBase(t)
	image := b.build(t, "gateway")
	want := config{User: "65532:65532", Entrypoint: []string{"/joulevirt-gateway"}}
	if diff := cmp.Diff(want, b.config(t, image)); diff != "" {
		t.Errorf("configuration, -want +got:\n%s", diff)
	}
	files := b.mount(t, image)
	program := filepath.Join(files, "joulevirt-gateway")
	checkBill(t, filepath.Join(files, "usr/share/sbom/joulevirt-gateway.cdx.json"), program, nil)
	checkStatic(t, program)
	checkRuns(t, files, 65532, "/joulevirt-gateway", "--help")
	checkRuns(t, files, 65532, "/usr/sbin/nginx", "-v")
}

// checkBill fails when the bill of materials lacks a module that is linked into the program,
// or names other packages of npm than it embeds.
func checkBill(t *testing.T, bill, program string, embeds []string) {
	t.Helper()
	text, err := os.ReadFile(bill)
	if err != nil {
		t.Error(err)
		return
	}
	var got struct {
		Components []struct{ Name, Version, PURL string }
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Errorf("%s: %v", bill, err)
	}
	listed := map[string]string{}
	var embedded []string
	for _, component := range got.Components {
		listed[component.Name] = component.Version
		if strings.HasPrefix(component.PURL, "pkg:npm/") {
			embedded = append(embedded, component.Name)
		}
	}
	if diff := cmp.Diff(embeds, embedded); diff != "" {
		t.Errorf("the bill of %s, packages of npm, -want +got:\n%s", program, diff)
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil || len(info.Deps) == 0 {
		t.Errorf("%s names %v: %v", program, info, err)
		return
	}
	for _, module := range info.Deps {
		if listed[module.Path] != module.Version {
			t.Errorf("the bill of %s has %s %q, linked is %q", program, module.Path, listed[module.Path], module.Version)
		}
	}
}

// checkOnlyFiles fails when the image adds to its base more than the program and its bill of
// materials.
func checkOnlyFiles(t *testing.T, files, program string) {
	t.Helper()
	err := filepath.WalkDir(files, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, _ := filepath.Rel(files, path)
		if name == "usr/share/sbom/"+program+".cdx.json" {
			return nil
		}
		if name != program {
			t.Errorf("the image holds %s, want only %s and its bill of materials", name, program)
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		t.Logf("figure %s_image_mb %.4g MB", program, float64(info.Size())/1e6)
		if info.Size() > maxProgram {
			t.Errorf("%s has %d bytes, want at most %d", program, info.Size(), maxProgram)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// checkStatic fails when a program needs a dynamic linker or libraries, which
// the base image does not have.
func checkStatic(t *testing.T, path string) {
	t.Helper()
	program, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	for _, segment := range program.Progs {
		if segment.Type == elf.PT_INTERP {
			t.Errorf("%s needs a dynamic linker", path)
		}
	}
	libraries, err := program.ImportedLibraries()
	if err != nil || len(libraries) > 0 {
		t.Errorf("%s needs libraries %v (%v)", path, libraries, err)
	}
}

// checkRuns starts the program with nothing around it but the image, as the
// image's user.
func checkRuns(t *testing.T, files string, uid uint32, program string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Chroot:     files,
		Credential: &syscall.Credential{Uid: uid, Gid: uid},
	}
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s %q: %v\n%s", program, args, err, text)
	}
}
