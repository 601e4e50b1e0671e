package launcher

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The kernel's bounds of cpu.shares and of cpu.weight, between which the kubelet maps
// one to the other.
const (
	maxShares = 262144
	maxWeight = 10000
)

// weightOf is the kubelet's conversion of cpu.shares to cpu.weight.
func weightOf(shares uint64) uint64 {
	return 1 + (shares-minShares)*(maxWeight-1)/(maxShares-minShares)
}

// sharesOf is the smallest cpu.shares that weightOf makes weight of.
func sharesOf(weight uint64) uint64 {
	const step = maxWeight - 1
	return minShares + ((max(weight, 1)-1)*(maxShares-minShares)+step-1)/step
}

// weighClass sets the weight of the pods' class (burstable, besteffort) that names
// lead through to what its pods weigh together. A class that this package did not
// create, or that is gone, is left alone; pods of class Guaranteed have none.
func (h hierarchy) weighClass(names []string) error {
	const classLevels = 4 // kubepods, class, pod, container
	if !h.has("cpu") || len(names) < classLevels {
		return nil
	}
	class := filepath.Join(h.mount, names[0], names[1])
	if created, err := wasCreatedHere(class); err != nil || !created {
		return err
	}
	entries, err := os.ReadDir(class)
	if err != nil {
		return fmt.Errorf("list the pods of %s: %w", class, err)
	}
	var sum uint64
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		shares, err := h.shares(filepath.Join(class, entry.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		sum += shares
	}
	return h.set(class, resources{shares: min(max(sum, minShares), maxShares)})
}

// shares reads the weight of a cgroup in the unit of cpu.shares.
func (h hierarchy) shares(dir string) (uint64, error) {
	name := "cpu.shares"
	if h.unified {
		name = "cpu.weight"
	}
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0, fmt.Errorf("read the weight of a pod: %w", err)
	}
	value, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("weight of %s: %w", dir, err)
	}
	if h.unified {
		return sharesOf(value), nil
	}
	return value, nil
}
