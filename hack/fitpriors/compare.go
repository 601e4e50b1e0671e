package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
)

// tolerance of numbers, relative: processors with fused multiplication round
// differently, by much less.
const tolerance = 1e-6

// compare says where the file differs from what was fitted.
func compare(have, want []byte) error {
	var a, b any
	if err := json.Unmarshal(have, &a); err != nil {
		return fmt.Errorf("file of priors: %w; run go run ./hack/fitpriors", err)
	}
	if err := json.Unmarshal(want, &b); err != nil {
		return fmt.Errorf("fitted priors: %w", err)
	}
	if where := difference("", a, b); where != "" {
		return fmt.Errorf("the file of priors is not what the tables lead to: %s; run go run ./hack/fitpriors", where)
	}
	return nil
}

// difference names the first place where two JSON values differ. Empty: nowhere.
func difference(at string, a, b any) string {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || !slices.Equal(slices.Sorted(maps.Keys(x)), slices.Sorted(maps.Keys(y))) {
			return fmt.Sprintf("%s: other fields", at)
		}
		for _, key := range slices.Sorted(maps.Keys(x)) {
			if where := difference(at+"."+key, x[key], y[key]); where != "" {
				return where
			}
		}
		return ""
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return fmt.Sprintf("%s: of another length", at)
		}
		for i := range x {
			if where := difference(fmt.Sprintf("%s[%d]", at, i), x[i], y[i]); where != "" {
				return where
			}
		}
		return ""
	case float64:
		y, ok := b.(float64)
		if ok && math.Abs(x-y) <= tolerance*math.Max(math.Abs(x), math.Abs(y)) {
			return ""
		}
	default:
		if a == b {
			return ""
		}
	}
	return fmt.Sprintf("%s: %v in the file, %v fitted", at, a, b)
}
