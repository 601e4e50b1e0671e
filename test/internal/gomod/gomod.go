// Package gomod finds the sources of Go modules, for what comes with them, such as manifests.
package gomod

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
)

// Dir returns the folder of a module's sources, which are downloaded when they are not
// there. The module is PATH@VERSION, or PATH for the version that the module of folder from
// requires; with a version, from may be anywhere.
func Dir(ctx context.Context, from, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Dir = from
	cmd.Env = append(cmd.Environ(), "GOWORK=off")
	answer, err := cmd.Output()
	var found struct{ Dir string }
	err = errors.Join(err, json.Unmarshal(answer, &found))
	if err == nil && found.Dir == "" {
		err = errors.New("it names no folder")
	}
	if err != nil {
		return "", fmt.Errorf("find the sources of %s: %w: go mod download answers %q", module, err, answer)
	}
	return found.Dir, nil
}
