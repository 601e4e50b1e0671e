package guest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cavaliergopher/cpio"
)

// file is one regular file of the initramfs.
type file struct {
	path    string
	mode    cpio.FileMode
	content []byte
}

// newestCloudKernel returns the release of the newest kernel of Debian's cloud
// flavour under host's /boot.
func newestCloudKernel(host string) (string, error) {
	const pattern = "vmlinuz-*-cloud-*"
	found, err := filepath.Glob(filepath.Join(host, "boot", pattern))
	if err != nil {
		return "", fmt.Errorf("look for the guest's kernel: %w", err)
	}
	if len(found) == 0 {
		return "", fmt.Errorf("no kernel %s in %s: install linux-image-cloud-amd64", pattern, filepath.Join(host, "boot"))
	}
	newest := slices.MaxFunc(found, func(a, b string) int {
		return compareReleases(filepath.Base(a), filepath.Base(b))
	})
	return strings.TrimPrefix(filepath.Base(newest), "vmlinuz-"), nil
}

// compareReleases orders version strings with runs of digits compared as
// numbers, so that 6.1.0-9 comes before 6.1.0-10.
func compareReleases(a, b string) int {
	for a != "" && b != "" {
		da, db := digits(a), digits(b)
		if da > 0 && db > 0 {
			x, y := strings.TrimLeft(a[:da], "0"), strings.TrimLeft(b[:db], "0")
			if len(x) != len(y) {
				return len(x) - len(y)
			}
			if x != y {
				return strings.Compare(x, y)
			}
			a, b = a[da:], b[db:]
			continue
		}
		if a[0] != b[0] {
			return int(a[0]) - int(b[0])
		}
		a, b = a[1:], b[1:]
	}
	return len(a) - len(b)
}

func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

// pack makes an initramfs for a kernel of host, of texts and of files of this machine by their paths
// in the guest without the first slash, and of modules with all that they need.
func pack(host, release string, texts, paths map[string]string, modules []string) ([]byte, error) {
	files, err := moduleFiles(host, release, modules)
	if err != nil {
		return nil, err
	}
	for _, path := range slices.Sorted(maps.Keys(texts)) {
		files = append(files, file{path: path, mode: 0o755, content: []byte(texts[path])})
	}
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		content, err := os.ReadFile(paths[path])
		if err != nil {
			return nil, fmt.Errorf("read a file for the guest (busybox is of busybox-static): %w", err)
		}
		files = append(files, file{path: path, mode: 0o755, content: content})
	}
	var archive bytes.Buffer
	if err := writeArchive(&archive, files); err != nil {
		return nil, fmt.Errorf("pack the guest's initramfs: %w", err)
	}
	return archive.Bytes(), nil
}

// moduleFiles gathers modules, all they depend on, and the order to load them
// in.
func moduleFiles(host, release string, wanted []string) ([]file, error) {
	root := filepath.Join(host, "lib/modules", release)
	deps, err := os.ReadFile(filepath.Join(root, "modules.dep"))
	if err != nil {
		return nil, fmt.Errorf("read the module list of kernel %s: %w", release, err)
	}
	builtin, err := os.ReadFile(filepath.Join(root, "modules.builtin"))
	if err != nil {
		return nil, fmt.Errorf("read what is built into kernel %s: %w", release, err)
	}
	wanted = slices.DeleteFunc(slices.Clone(wanted), func(name string) bool { return isBuiltin(string(builtin), name) })
	order, err := loadOrder(bytes.NewReader(deps), wanted)
	if err != nil {
		return nil, fmt.Errorf("kernel %s: %w", release, err)
	}
	var files []file
	var names strings.Builder
	for _, module := range order {
		content, err := os.ReadFile(filepath.Join(root, module))
		if err != nil {
			return nil, fmt.Errorf("read a module of kernel %s: %w", release, err)
		}
		name := filepath.Base(module)
		fmt.Fprintln(&names, name)
		files = append(files, file{path: "modules/" + name, mode: 0o644, content: content})
	}
	return append(files, file{path: "modules/order", mode: 0o644, content: []byte(names.String())}), nil
}

// isBuiltin reports whether a module is in the list of those that are part of a
// kernel: kernel/FOLDER/NAME.ko on each line.
func isBuiltin(list, name string) bool {
	for path := range strings.Lines(list) {
		if moduleName(path) == name {
			return true
		}
	}
	return false
}

// moduleName is that of a module's file.
func moduleName(path string) string {
	name, _, _ := strings.Cut(filepath.Base(path), ".")
	return strings.ReplaceAll(name, "-", "_")
}

// loadOrder reads the modules.dep format and returns the files of the wanted
// modules and all they depend on, each after its dependencies. modules.dep
// lists a module's dependencies with the deepest last.
func loadOrder(modulesDep io.Reader, wanted []string) ([]string, error) {
	dependencies := map[string][]string{}
	pathOf := map[string]string{}
	lines := bufio.NewScanner(modulesDep)
	for lines.Scan() {
		path, rest, ok := strings.Cut(lines.Text(), ":")
		if !ok {
			continue
		}
		dependencies[path] = strings.Fields(rest)
		pathOf[moduleName(path)] = path
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read modules.dep: %w", err)
	}
	var order []string
	add := func(path string) {
		if !slices.Contains(order, path) {
			order = append(order, path)
		}
	}
	for _, name := range wanted {
		path, ok := pathOf[name]
		if !ok {
			return nil, fmt.Errorf("modules.dep has no module %s", name)
		}
		for _, dependency := range slices.Backward(dependencies[path]) {
			add(dependency)
		}
		add(path)
	}
	return order, nil
}

// writeArchive writes files and the folders that they need, plus the mount
// points of the init script, in the format that the kernel unpacks. The result
// depends on files only: no times, no owners.
func writeArchive(w io.Writer, files []file) error {
	archive := cpio.NewWriter(w)
	made := map[string]bool{".": true}
	var mkdir func(path string) error
	mkdir = func(path string) error {
		if made[path] {
			return nil
		}
		if err := mkdir(filepath.Dir(path)); err != nil {
			return err
		}
		made[path] = true
		return archive.WriteHeader(&cpio.Header{Name: path, Mode: cpio.TypeDir | 0o755})
	}
	var problems []error
	for _, dir := range []string{"proc", "sys", "dev", "tmp"} {
		problems = append(problems, mkdir(dir))
	}
	for _, f := range files {
		problems = append(problems, mkdir(filepath.Dir(f.path)))
		header := cpio.Header{Name: f.path, Mode: cpio.TypeReg | f.mode, Size: int64(len(f.content))}
		problems = append(problems, archive.WriteHeader(&header))
		_, err := archive.Write(f.content)
		problems = append(problems, err)
	}
	return errors.Join(append(problems, archive.Close())...)
}
